"""Which source is drawn."""

import random
from collections import Counter

import pytest

from node.shards.selection import LEAST_SUCCESS, MAX_SOURCES, Selection


class Time:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def selection(time: Time) -> Selection:
    return Selection(random.Random(1), time)


def drawn(selection: Selection, sources: list[str], times: int = 1000) -> Counter[str | None]:
    return Counter(selection.choose(sources) for _ in range(times))


def test_sources_are_drawn_alike_when_nothing_is_known(selection: Selection) -> None:
    counts = drawn(selection, ["a", "b"])
    assert 430 < counts["a"] < 570


def test_sources_are_drawn_in_proportion_when_their_bandwidths_differ(selection: Selection) -> None:
    selection.succeeded("a", 3_000_000, 1.0)
    selection.succeeded("b", 1_000_000, 1.0)
    assert selection.weight("a") / selection.weight("b") == pytest.approx(3.0)
    assert 680 < drawn(selection, ["a", "b"])["a"] < 820


def test_a_new_source_counts_as_the_mean_when_others_were_measured(selection: Selection) -> None:
    selection.succeeded("a", 3_000_000, 1.0)
    selection.succeeded("b", 1_000_000, 1.0)
    assert selection.weight("new") == pytest.approx(2_000_000)


def test_bandwidth_moves_by_three_tenths_when_measured_again(selection: Selection) -> None:
    selection.succeeded("a", 1_000_000, 1.0)
    selection.succeeded("a", 2_000_000, 1.0)
    assert selection.weight("a") == pytest.approx(1_300_000)


def test_bandwidth_stays_when_an_answer_is_small(selection: Selection) -> None:
    selection.succeeded("a", 1_000_000, 1.0)
    selection.succeeded("a", 8, 1.0)
    assert selection.weight("a") == pytest.approx(1_000_000)


def test_a_failure_lowers_the_success_rate_and_no_bandwidth_when_a_source_times_out(selection: Selection) -> None:
    selection.succeeded("a", 1_000_000, 1.0)
    selection.failed("a", "timeout")
    assert selection.weight("a") == pytest.approx(700_000)
    selection.failed("a", "timeout")
    assert selection.weight("a") == pytest.approx(490_000)


def test_a_source_is_proven_when_a_chunk_came_and_nothing_failed_since(selection: Selection) -> None:
    selection.succeeded("a", 8, 1.0)
    assert not selection.proven("a")
    selection.succeeded("a", 4 << 20, 1.0)
    assert selection.proven("a")
    selection.failed("a", "stalled")
    assert not selection.proven("a")


def test_the_proven_are_tried_every_second_time_and_the_first_while_there_are_none(selection: Selection) -> None:
    many = [str(number) for number in range(30)]
    assert 230 < [selection.try_one(many) for _ in range(500)].count("0") < 290
    selection.failed("0", "stalls")
    assert 230 < [selection.try_one(many) for _ in range(500)].count("1") < 290  # the next one takes its place
    selection.succeeded("20", 4 << 20, 1.0)
    assert [selection.try_one(many) for _ in range(500)].count("1") < 50
    assert 230 < [selection.try_one(many) for _ in range(500)].count("20") < 290
    assert selection.try_one([]) is None


def test_few_are_half_proven_ones_and_the_others_stand_first_or_are_drawn(selection: Selection) -> None:
    many = [str(number) for number in range(150)]
    assert selection.few(many, 4)[:2] == ["0", "1"]
    assert len(set(selection.few(many, 4))) == 4
    for late in ("140", "141", "142"):
        selection.succeeded(late, 4 << 20, 1.0)
    for _ in range(50):
        first, second, third, fourth = selection.few(many, 4)
        assert {first, second} < {"140", "141", "142"}
        assert (third, fourth in {"140", "141", "142"}) == ("0", False)
    assert sorted(selection.few(["140", "141", "142", "x"], 4)) == ["140", "141", "142", "x"]
    assert selection.few([], 4) == []


def test_somebody_is_drawn_when_everybody_failed_very_often(selection: Selection, time: Time) -> None:
    for _ in range(1000):
        selection.failed("a", "down")
        selection.failed("b", "down")
    time.seconds = 15.0
    assert set(drawn(selection, ["a", "b"])) == {"a", "b"}
    assert selection.weight("a") >= LEAST_SUCCESS


def test_a_source_heals_by_time_when_it_failed(selection: Selection, time: Time) -> None:
    selection.succeeded("a", 1_000_000, 1.0)
    selection.failed("a", "down")
    time.seconds = 300.0
    assert selection.weight("a") == pytest.approx(1_000_000 * (1 - 0.3 / 2.718281828))


def test_a_source_pauses_longer_when_it_fails_again_and_again(selection: Selection, time: Time) -> None:
    selection.failed("a", "down")
    assert selection.choose(["a"]) is None
    time.seconds = 0.25
    assert selection.choose(["a"]) == "a"
    selection.failed("a", "down")
    time.seconds = 0.74
    assert selection.choose(["a"]) is None
    time.seconds = 0.75
    assert selection.choose(["a"]) == "a"
    for _ in range(2000):
        selection.failed("a", "down")
    time.seconds += 15.0
    assert selection.choose(["a"]) == "a"


def test_a_source_is_never_drawn_again_when_it_lied(selection: Selection, time: Time) -> None:
    selection.ban("a", "served a wrong chunk")
    time.seconds = 1e9
    assert set(drawn(selection, ["a", "b"])) == {"b"}
    assert selection.choose(["a"]) is None
    assert selection.banned == {"a": "served a wrong chunk"}


def test_nobody_is_drawn_when_there_is_nobody(selection: Selection) -> None:
    assert selection.choose([]) is None
    assert selection.account([]) == "there are no sources"


def test_every_source_is_accounted_for_when_a_download_failed(selection: Selection) -> None:
    selection.failed("a", "refused")
    selection.ban("b", "lied")
    selection.lacks("c")
    assert selection.account(["a", "b", "c", "d"]) == "a: refused; b: lied; c: does not have it; d: not asked"


def test_memory_is_bounded_when_sources_keep_coming(selection: Selection) -> None:
    for number in range(MAX_SOURCES + 50):
        selection.failed(f"failed {number}", "x" * 10_000)
        selection.ban(f"banned {number}", "x" * 10_000)
    assert selection.account(["failed 50"]) == "failed 50: " + "x" * 200
    assert selection.account(["failed 49"]) == "failed 49: not asked"  # forgotten: it was unused for longest
    assert len(selection.banned) == MAX_SOURCES
