"""What many nodes ask for at once, of which there is only so much: each has its part, whoever asks most."""

import asyncio

import pytest

from ledger.base import Address
from node.crowd import Crowd
from node.errors import NotFound
from node.p2p.content import Kind, Piece
from node.p2p.crowd import place
from node.p2p.limits import MAX_REQUESTS
from node.p2p.protocols import CONTENT
from node.p2p.service import CONTENT_AT_ONCE
from tests.p2p.parts import FILE, SilentPieces, come, ended, town, until

PIECE = Piece(Kind.FILE, FILE, 0)
GREEDY, OTHER = Address("0x" + "aa" * 20), Address("0x" + "bb" * 20)


async def hold(crowd: Crowd, asker: Address) -> None:
    async with place(crowd, asker):
        await asyncio.Event().wait()


async def test_who_has_most_gives_way_until_all_have_as_much() -> None:
    crowd = Crowd(4, newest_goes=True)
    greedy = [asyncio.create_task(hold(crowd, GREEDY)) for _ in range(4)]
    await until(lambda: len(crowd) == 4)
    with pytest.raises(NotFound, match="too much at once"):
        await hold(crowd, GREEDY)

    other = [asyncio.create_task(hold(crowd, OTHER)) for _ in range(2)]
    await until(lambda: greedy[2].done() and greedy[3].done())
    with pytest.raises(NotFound, match="who have less"):
        await greedy[3]
    with pytest.raises(NotFound, match="too much at once"):
        await hold(crowd, OTHER)

    assert crowd.of(GREEDY) == crowd.of(OTHER) == 2
    await ended([*greedy, *other])
    assert len(crowd) == 0


async def test_what_waits_for_an_uplink_leaves_places_for_all_that_is_answered_at_once() -> None:
    """A node's peers may ask for eight pieces each: 64 that waited were all that are asked of a node at once."""
    async with town() as here:
        silent = SilentPieces()
        first = await here.node(1, silent)
        crowd = [await come(here, first, peer, peer) for peer in range(20, 28)]
        asked = [asyncio.create_task(first.asked(peer, CONTENT, PIECE.encode())) for peer in crowd for _ in range(8)]

        await until(lambda: sum(task.done() for task in asked) == MAX_REQUESTS - CONTENT_AT_ONCE)
        silent.content[FILE] = b"rollouts"
        answer = await first.asked(await come(here, first, 30, 30), CONTENT, PIECE.encode())

        assert answer.endswith(b"rollouts")
        await ended(asked)
