"""What nobody waits for any more is not worked for, and not sent, by whoever was asked in another process."""

import asyncio
from pathlib import Path

from node.p2p.limits import MAX_REQUESTS_PER_PEER
from node.p2p.protocols import CONTENT
from tests.p2p.lines import SlowLine
from tests.p2p.parts import ended, until
from tests.p2p.sidecars import Ear, introduced, sidecars

MOST = MAX_REQUESTS_PER_PEER - 1  # the introduction's place may not be free yet


async def test_an_answer_that_is_waited_for_no_more_is_given_up_by_whoever_was_asked(tmp_path: Path) -> None:
    """Each held one of eight places for thirty seconds, and its asker was told that the peer is busy."""
    async with sidecars(tmp_path, 2) as (asker, asked):
        await introduced(asker, asked)
        for _ in range(2):
            asks = [asyncio.create_task(asker.sidecar.ask(asked.peer, CONTENT, b"never")) for _ in range(MOST)]
            await until(lambda: asked.asked_for.count(b"never") == asked.given_up + MOST)

            await ended(asks)

            await until(lambda: asked.asked_for.count(b"never") == asked.given_up)
        assert await asker.sidecar.ask(asked.peer, CONTENT, b"x") == b"x"


async def test_what_a_peer_asked_that_is_gone_is_given_up(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (asker, asked):
        await introduced(asker, asked)
        ask = asyncio.create_task(asker.sidecar.ask(asked.peer, CONTENT, b"never"))
        await until(lambda: asked.asked_for == [b"never"])

        asker.sidecar.drop(asked.peer)

        await until(lambda: asked.given_up == 1)
        await ended([ask])


async def test_of_an_answer_that_is_taken_back_no_more_is_sent(tmp_path: Path) -> None:
    """A MiB would have the line for four seconds, in which the next one waits."""
    line = SlowLine(rate=300e3)
    async with sidecars(tmp_path, 2) as (asker, asked), line.to(asker.address) as way:
        await introduced(asked, asker, way)
        ask = asyncio.create_task(asker.sidecar.ask(asked.peer, CONTENT, b"large"))
        await until(lambda: line.passed > 20_000)

        await ended([ask])

        assert await asker.sidecar.ask(asked.peer, CONTENT, b"x", seconds=15) == b"x"
        assert line.passed < 700_000


async def test_what_is_taken_back_while_its_stream_is_being_opened_takes_no_place_for_good(tmp_path: Path) -> None:
    """Broken off there, py-libp2p keeps one of 256 places, and the asked side one of eight for half a minute."""
    async with sidecars(tmp_path, 2) as (asker, asked):
        await introduced(asker, asked)
        for number in range(700):
            ask = asyncio.create_task(asker.sidecar.ask(asked.peer, CONTENT, b"never"))
            await asyncio.sleep(0.002 * (number % 8) / 8)
            await ended([ask])

        await asyncio.sleep(2)  # it has asked for more than it may, for a moment
        assert await all_answered(asker, asked.peer)


async def all_answered(asker: Ear, peer: str) -> bool:
    asks = [asker.sidecar.ask(peer, CONTENT, b"x") for _ in range(MOST)]
    return all(answer == b"x" for answer in await asyncio.gather(*asks, return_exceptions=True))
