"""Rates with bursts, by hand."""

import pytest

from node.buckets import Bucket, Rates


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_burst_passes_and_then_the_rate_when_time_passes() -> None:
    now = Clock()
    bucket = Bucket(rate=2.0, burst=3.0, now=now)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    assert bucket.seconds_until() == 0.5
    now.seconds += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    now.seconds += 1_000
    assert [bucket.take(3.0), bucket.take()] == [True, False]  # no more is saved up than the burst


def test_nothing_passes_when_more_was_taken_than_there_was() -> None:
    now = Clock()
    bucket = Bucket(rate=10.0, burst=5.0, now=now)
    assert bucket.overdraw(5.0) == 0.0
    assert bucket.overdraw(20.0) == pytest.approx(2.0)
    assert not bucket.take(0.0) and bucket.seconds_until(1.0) == pytest.approx(2.1)
    now.seconds += 2.0
    assert bucket.take(0.0) and not bucket.take(1.0)


def test_nothing_is_taken_away_when_the_clock_is_set_back() -> None:
    now = Clock()
    bucket = Bucket(rate=1.0, burst=2.0, now=now)
    now.seconds -= 50
    assert bucket.take(2.0) and not bucket.take()
    now.seconds += 1
    assert bucket.take()


def test_each_name_has_its_own_and_the_longest_unseen_is_forgotten_when_there_are_too_many() -> None:
    rates = Rates(rate=1.0, burst=1.0, most=2, now=Clock())
    assert [rates.of(name).take() for name in ("a", "b", "a", "b")] == [True, True, False, False]
    rates.of("a")
    assert rates.of("c").take() and len(rates.buckets) == 2
    assert not rates.of("a").take()
    assert rates.of("b").take()  # begun anew
