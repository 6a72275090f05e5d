"""Rate, time left, stalls: by a clock that the test moves; on a terminal, and in a log."""

import json
import logging
import os
import pty
import select
import threading
from collections.abc import Iterator

import pytest

from node.log import configure, event, live
from node.progress import Progress
from tests import loggers
from tests.clocks import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with loggers.restored():
        yield


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_the_rate_is_what_was_done_in_the_time_that_it_took(clock: HandClock) -> None:
    progress = Progress("downloading", "bytes", clock)
    for done in (100, 200, 300):
        clock.now += 2
        progress(done, 1000)

    assert progress.rate == 300 / 6
    assert progress.seconds_left == 700 / 50
    assert progress.stalled_seconds is None


def test_what_was_there_before_counts_for_nothing_but_the_percentage(clock: HandClock) -> None:
    progress = Progress("downloading", "bytes", clock, resumes=True)
    progress(600_000, 1_000_000)
    clock.now += 10
    progress(700_000, 1_000_000)

    assert progress.rate == 10_000
    assert progress.seconds_left == 30
    assert progress.text() == "downloading, 70%, 700.0 kB, 10.0 kB/s, 30 s left"
    assert progress.summary() == {"bytes": 100_000, "seconds": 10, "bytes_s": 10_000}


def test_the_rate_is_that_of_the_last_half_minute_when_it_changes(clock: HandClock) -> None:
    progress = Progress("generating", "tokens", clock)
    for _ in range(60):  # 100 a second for a minute
        clock.now += 1
        progress(100 * (round(clock.now) - 1000), 20_000)
    for second in range(30):  # then 10 a second
        clock.now += 1
        progress(6000 + 10 * (second + 1), 20_000)

    assert progress.rate == 10
    assert progress.seconds_left == 1370


def test_a_stall_is_said_and_the_rate_falls_to_nothing(clock: HandClock) -> None:
    progress = Progress("downloading", "bytes", clock, version=3)
    clock.now += 10
    progress(1_000_000, 4_000_000)
    assert progress.seconds_left == 30

    clock.now += 10
    assert progress.rate == 50_000
    assert progress.text() == "downloading version 3, 25%, 1.0 MB, 50.0 kB/s, nothing for 10 s"
    clock.now += 31
    assert (progress.rate, progress.seconds_left, progress.stalled_seconds) == (0, None, 41)


def test_what_is_taken_back_is_no_progress_and_no_rate_below_nothing(clock: HandClock) -> None:
    progress = Progress("downloading", "bytes", clock)
    progress(4_000_000, 8_000_000)
    clock.now += 11
    progress(3_000_000, 8_000_000)

    assert progress.stalled_seconds == 11
    assert (progress.rate, progress.moved) == (3_000_000 / 11, 3_000_000)
    clock.now += 40
    assert progress.rate == 0
    progress(2_000_000, 8_000_000)
    assert progress.rate == 0
    assert progress.seconds_left is None


def test_a_model_that_takes_minutes_for_a_batch_is_not_said_to_stall(clock: HandClock) -> None:
    progress = Progress("training", "tokens", clock)
    clock.now += 299
    assert progress.stalled_seconds is None
    clock.now += 1
    assert progress.stalled_seconds == 300


def test_without_a_total_there_is_no_share_and_no_time_left(clock: HandClock) -> None:
    progress = Progress("fetching", "bytes", clock)
    clock.now += 4
    progress(2_000_000_000)

    assert progress.text() == "fetching, 2.0 GB, 500.0 MB/s"
    assert progress.seconds_left is None


def test_what_cannot_be_counted_shows_how_long_it_has_taken(clock: HandClock) -> None:
    progress = Progress("loading the model", "", clock, version=2)
    clock.now += 75

    assert progress.text() == "loading the model version 2, 75 s"
    assert progress.stalled_seconds is None


def test_digests_are_cut_short_in_the_live_line(clock: HandClock) -> None:
    assert Progress("handing over", "", clock, commitment=b"\xab" * 32).text() == (
        "handing over commitment 0xabababab…, 0.00 s"
    )


def test_a_total_that_shrinks_to_what_is_done_ends_at_all_of_it(clock: HandClock) -> None:
    progress = Progress("generating", "tokens", clock)
    clock.now += 1
    progress(50, 100)
    clock.now += 1
    progress(60, 60)

    assert progress.text() == "generating, 100%, 60 tokens, 30 tokens/s, 0.00 s left"


def test_a_log_gets_a_line_every_ten_seconds(clock: HandClock, capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=True)
    progress = Progress("downloading", "bytes", clock, version=3)
    for turn in range(50):  # looked at twice a second
        clock.now += 0.5
        progress(500 * (turn + 1), 100_000)
        progress.look()

    first, second = logged(capsys)
    assert (first["event"], first["version"], first["bytes"], first["percent"]) == ("downloading", 3, 10_000, 10)
    assert (first["bytes_s"], first["seconds"], first["seconds_left"]) == (1000.0, 10.0, 90.0)
    assert (second["seconds"], second["total_bytes"]) == (20.0, 100_000)
    assert "stalled_seconds" not in first


def test_a_stall_is_in_the_log_too(clock: HandClock, capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=True)
    progress = Progress("downloading", "bytes", clock)
    clock.now += 12
    progress.look()

    (line,) = logged(capsys)
    assert (line["bytes"], line["bytes_s"], line["stalled_seconds"]) == (0, 0.0, 12.0)
    assert "seconds_left" not in line and "percent" not in line


def test_it_looks_by_itself_while_it_is_entered_and_no_longer(capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=True)
    looked = threading.Event()

    class Leaping(HandClock):
        def monotonic(self) -> float:
            self.now += 20
            if self.now > 1100:
                looked.set()
            return self.now

    before = threading.active_count()
    with Progress("loading the model", "", Leaping()):
        assert looked.wait(10)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert {line["event"] for line in logged(capsys)} == {"loading the model"}


def test_a_part_is_shown_instead_of_the_whole_which_has_not_stalled_afterwards(
    clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("worker", json_lines=True)
    progress = Progress("downloading", "bytes", clock, resumes=True, version=3)
    with progress.part("waiting for a patch", "") as waiting:
        clock.now += 12
        for each in (progress, waiting):
            each.look()
        assert waiting.text() == "waiting for a patch version 3, 12 s"
    clock.now += 9
    progress.look()
    assert progress.stalled_seconds is None
    clock.now += 1
    progress.look()

    first, second = logged(capsys)
    assert (first["event"], first["version"], first["seconds"]) == ("waiting for a patch", 3, 12.0)
    assert (second["event"], second["seconds"], second["stalled_seconds"]) == ("downloading", 22.0, 10.0)


def test_a_failure_inside_goes_through(clock: HandClock) -> None:
    with pytest.raises(ZeroDivisionError), Progress("downloading", "bytes", clock):
        raise ZeroDivisionError


class Terminal:
    """A pseudo-terminal, and what is shown on it so far."""

    def __init__(self) -> None:
        self._read, end = pty.openpty()
        self.stream = os.fdopen(end, "w")

    def shown(self) -> str:
        self.stream.flush()
        pieces = []
        while select.select([self._read], [], [], 0.05)[0]:
            pieces.append(os.read(self._read, 1 << 16))
        return b"".join(pieces).decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.stream.close()
        os.close(self._read)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made.stream)
    monkeypatch.setenv("COLUMNS", "60")
    configure("worker", json_lines=False)
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "60")
    yield made
    made.close()


CLEAR = "\r\x1b[2K"


def test_a_terminal_has_a_live_line_below_the_events(clock: HandClock, terminal: Terminal) -> None:
    progress = Progress("downloading", "bytes", clock, version=3)
    clock.now += 1
    progress(500, 1000)
    progress.look()
    event("serving", url="http://a")
    clock.now += 1
    progress(1000, 1000)
    progress.look()
    live(progress, None)

    first, second = terminal.shown().split("\n")
    assert first.startswith("downloading version 3, 50%, 500 bytes, 500 bytes/s, 1.00 s") and CLEAR in first
    assert first.endswith(" worker     serving url=http://a")
    assert second == (
        "downloading version 3, 50%, 500 bytes, 500 bytes/s, 1.00 s "[:59]
        + CLEAR
        + "downloading version 3, 100%, 1.0 kB, 500 bytes/s, 0.00 s left"[:59]
        + CLEAR
    )


def test_two_things_at_once_share_the_live_line_and_leave_it_clean(terminal: Terminal, clock: HandClock) -> None:
    with Progress("loading", "", clock) as one, Progress("fetching", "", clock) as other:
        one.look()
        other.look()
        shown = terminal.shown()
    assert "loading, 0.00 s | fetching, 0.00 s" in shown
    assert terminal.shown().endswith(CLEAR)


def test_no_live_line_goes_into_a_file(clock: HandClock, capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=False)
    progress = Progress("downloading", "bytes", clock)
    progress.look()
    logging.getLogger("node").info("plain")

    assert "\x1b" not in capsys.readouterr().err
