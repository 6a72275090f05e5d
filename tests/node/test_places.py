"""Who has a place of those that there are for files on their way, and for how long."""

import asyncio
import time

import pytest

from node.transport.places import Places


async def test_many_that_gave_up_waiting_hold_nobody_up() -> None:
    places = Places(2)
    with await places.take("a"):
        second = await places.take("a")
        waiting = [asyncio.ensure_future(places.take(f"address {n}")) for n in range(16_000)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        began = time.process_time()
        second.give_up()
        assert time.process_time() - began < 1  # to look at each again for each took 6 s


async def test_who_has_had_a_place_for_long_goes_on_without_it_where_somebody_waits() -> None:
    places, began = Places(2, lease_seconds=0.3), time.monotonic()
    with await places.take("slow"), await places.take("slow"):
        first = await asyncio.wait_for(places.take("a"), 5)
        assert time.monotonic() - began >= 0.3
        second = await asyncio.wait_for(places.take("b"), 5)
        await asyncio.sleep(0.4)  # nobody waits: both keep theirs
        async with asyncio.timeout(0.2):
            third = await places.take("c")
        for each in (first, second, third):
            each.give_up()
    for _ in range(2):  # both are free again, and no more
        await asyncio.wait_for(places.take("d"), 0.1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await places.take("d")


async def test_who_still_waits_when_every_place_has_just_passed_on_has_the_next_turn() -> None:
    places = Places(2, lease_seconds=0.2)
    with await places.take("slow"), await places.take("slow"):
        async with asyncio.timeout(5):
            leases = await asyncio.gather(*(places.take(address) for address in "abc"))
        for each in leases:
            each.give_up()


async def test_a_place_passes_on_when_whoever_was_given_it_is_cancelled() -> None:
    places = Places(2)
    with await places.take("a"):
        second = await places.take("a")
        waiting = asyncio.ensure_future(places.take("b"))
        await asyncio.sleep(0)
        second.give_up()  # given to `waiting`, which does not live to see it
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        async with asyncio.timeout(1):
            (await places.take("c")).give_up()
