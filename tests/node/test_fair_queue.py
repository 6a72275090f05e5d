"""Whose turn it is, exactly; no clock takes part."""

import time
from collections import Counter

import pytest

from node.fair_queue import MOST_REMEMBERED, FairQueue, Waiting


def joined(queue: FairQueue, *asked: tuple[str, int]) -> list[Waiting]:
    return [queue.join(owner, size) for owner, size in asked]


def order(queue: FairQueue) -> str:
    """Of the owners, until nobody waits."""
    owners = ""
    while (waiting := queue.next()) is not None:
        owners += waiting.owner
    return owners


async def test_who_has_been_given_least_is_next_and_who_came_first_among_those() -> None:
    queue = FairQueue()
    joined(queue, *[("a", 6)] * 2, *[("b", 2)] * 4, ("c", 5))

    # a 6, b 2, c 5, b 4, b 6: both have 6 then, and a's second came before b's fourth
    assert order(queue) == "abcbbab"


async def test_who_asks_for_much_at_a_time_gets_no_more_than_who_asks_for_little() -> None:
    queue, given = FairQueue(), Counter[str]()
    joined(queue, ("much", 1000), ("little", 382))
    for _ in range(1000):
        waiting = queue.next()
        assert waiting is not None
        given[waiting.owner] += waiting.size
        assert abs(given["much"] - given["little"]) <= 1000
        queue.join(waiting.owner, waiting.size)


async def test_who_asks_for_many_at_once_gets_no_more_than_who_asks_for_one_after_another() -> None:
    queue = FairQueue()
    joined(queue, *[("a", 1)] * 9)
    owners = ""
    for _ in range(4):
        joined(queue, ("b", 1))
        owners += "".join(waiting.owner for _ in range(2) if (waiting := queue.next()) is not None)

    assert owners == "ab" * 4


async def test_who_comes_late_has_no_turns_for_what_it_did_not_ask_for() -> None:
    queue = FairQueue()
    joined(queue, *[("a", 1)] * 8)
    for _ in range(5):
        queue.next()  # a has been given 5, and had 4 when it was its turn last
    joined(queue, *[("b", 1)] * 3)

    assert order(queue) == "bababa"


async def test_what_somebody_was_given_counts_when_it_comes_again_though_nobody_waited_meanwhile() -> None:
    queue = FairQueue()
    joined(queue, ("a", 10))
    assert order(queue) == "a"
    joined(queue, ("a", 10), *[("b", 4)] * 4)

    assert order(queue) == "bbbab"


async def test_who_gave_up_is_passed_over_and_was_given_nothing() -> None:
    queue = FairQueue()
    left, cancelled, _, left_later, _ = joined(queue, ("a", 9), ("a", 9), ("b", 1), ("c", 1), ("a", 9))
    for _ in range(2):
        queue.leave(left)
    cancelled.turn.cancel()

    assert queue.next() is not None and queue.owners == {"a", "c"}
    queue.leave(left_later)
    assert queue.owners == {"a"}
    joined(queue, ("b", 1))
    assert order(queue) == "ab"


@pytest.mark.parametrize("owners", [1, 16_000])
async def test_many_that_give_up_at_once_hold_nobody_up(owners: int) -> None:
    queue = FairQueue()
    first, *waiting = joined(queue, *((f"owner {number % owners}", 1) for number in range(16_000)))
    began = time.process_time()
    for each in waiting:
        each.turn.cancel()
        queue.leave(each)
    assert (queue.next(), queue.next()) == (first, None)
    assert time.process_time() - began < 1  # to look at each again for each took 6 s


async def test_of_more_owners_than_are_remembered_each_begins_anew() -> None:
    queue = FairQueue()
    joined(queue, ("a", 10))
    assert order(queue) == "a"
    for number in range(MOST_REMEMBERED):
        queue.join(f"owner {number}")
        queue.next()
    joined(queue, ("a", 1), ("b", 1))

    assert order(queue) == "ab"
