"""Whom content is had from: liars, those that stall, and in what order, over a wire in memory and through a relay."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ledger.base import Address, Digest
from node.errors import Malformed, NotFound
from node.p2p.content import PIECE_BYTES, SIZE, Content, Kind, Piece, PieceSource
from node.p2p.network import Network
from node.p2p.protocols import CONTENT
from node.p2p.sources import LEAST_BYTES_PER_SECOND, Sources, Way
from node.shards.bans import Bans
from tests.p2p.parts import Holding, Town, account, town, until

FILE = Digest(b"\x07" * 32)
DATA = bytes(range(256)) * 10_000  # 2.56 MB: three pieces


def require_data(data: bytes) -> None:
    if data != DATA:
        raise Malformed("other bytes")


def wanted(limit: int = len(DATA)) -> Content:
    return Content(Kind.FILE, FILE, limit, require_data)


def holding(data: bytes) -> Holding:
    held = Holding()
    held.content[FILE] = data
    return held


def node(number: int) -> Address:
    return Address(account(number).address)


class Stalling:
    """Takes every question and answers none."""

    asked = 0

    async def piece(self, wanted: Piece) -> tuple[int, bytes]:
        self.asked += 1
        await asyncio.Event().wait()
        raise NotFound("never")

    async def turn(self, size: int) -> None:
        return None


async def asker(place: Town, *contents: PieceSource) -> tuple[Network, list[Address]]:
    """One that is connected with holders of `contents`, and those."""
    first = await place.node(1)
    holders = [await place.node(n, held, bootstrap=(place.address(first),)) for n, held in enumerate(contents, 2)]
    await until(lambda: all(one.peer in first.known and first.peer in one.known for one in holders))
    return first, [one.myself.address for one in holders]


async def test_who_hands_over_other_bytes_is_banned_and_the_next_is_asked() -> None:
    async with town() as place:
        lies = [holding(DATA[:-1] + b"!"), holding(DATA + b"!"), holding(b"!" * len(DATA))]
        first, (*liars, honest) = await asker(place, *lies, holding(DATA))
        first.rng = first.sources.rng = random.Random(3)
        others = [*liars, honest]

        for _ in range(12):  # each time in another order: every liar is met before long
            assert await first.fetch(wanted(), others) == DATA
            first.sources = Sources(first.bans, first.rng)

        assert all(liar in first.bans for liar in liars) and honest not in first.bans
        assert [held.asked for held in lies] == [3, 1, 3]  # once each; the second says at once that it has more
        with pytest.raises(NotFound):
            await first.fetch(wanted(), liars)


async def test_who_stalls_is_given_up_in_time_and_asked_last_from_then_on() -> None:
    async with town() as place:
        slow = Stalling()
        first, (stalling, honest) = await asker(place, slow, holding(DATA))

        while not slow.asked:  # it is drawn first before long
            first.sources = Sources(first.bans, random.Random(), first_seconds=0.2)
            assert await first.fetch(wanted(), [stalling, honest]) == DATA
        for _ in range(8):
            assert await first.fetch(wanted(), [stalling, honest]) == DATA

        assert slow.asked == 1 and stalling not in first.bans


async def test_nobody_is_banned_for_what_a_relay_made_of_it() -> None:
    async with town() as place:
        relay = await place.node(1)
        worker = await place.node(2, holding(DATA), inbound=False, bootstrap=(place.address(relay),))
        first = await place.node(3, inbound=False, bootstrap=(place.address(relay),))
        await until(lambda: worker.peer in relay.known and node(2) in first.book.heartbeats)
        plain = relay.service.answer

        async def forged(peer: str, protocol: str, body: bytes) -> bytes:
            return SIZE.pack(1) + b"!" if protocol != CONTENT and len(body) > 40 else await plain(peer, protocol, body)

        relay.link.listener = Forging(relay, forged)  # type: ignore[attr-defined]
        with pytest.raises(NotFound):
            await first.fetch(wanted(), [node(2)])
        relay.link.listener = relay  # type: ignore[attr-defined]

        assert await first.fetch(wanted(), [node(2)]) == DATA


class Forging:
    """A network of which what others ask is answered by `answer`."""

    def __init__(self, network: Network, answer: Callable[[str, str, bytes], Awaitable[bytes]]) -> None:
        self.network, self.asked = network, answer

    def __getattr__(self, name: str) -> object:
        return getattr(self.network, name)


async def test_the_order_is_drawn_and_who_gave_what_it_was_asked_for_comes_first() -> None:
    nodes = [node(number) for number in range(2, 8)]
    sources = Sources(Bans(), random.Random(1))

    assert {sources.order(nodes)[0] for _ in range(200)} == set(nodes)
    await sources.answer(_way(nodes[4], b""), wanted())  # an answer that is none, through a relay
    await sources.answer(_way(nodes[2], DATA), wanted())
    sources.bans.add(nodes[0], "it lied")

    orders = [sources.order([*nodes, *nodes]) for _ in range(50)]
    assert {(order[0], order[-1]) for order in orders} == {(nodes[2], nodes[4])}
    assert {frozenset(order[1:-1]) for order in orders} == {frozenset({nodes[1], nodes[3], nodes[5]})}
    assert len({tuple(order) for order in orders}) == 6  # every order of three


def _way(who: Address, data: bytes) -> Way:
    async def ask(request: bytes) -> bytes:
        piece = Piece.parse(request)
        return SIZE.pack(len(data)) + data[piece.offset : piece.offset + piece.length]

    return Way(who, ask, direct=False)


async def test_a_holder_that_gets_on_has_the_time_of_a_slow_line_and_one_that_drips_has_not() -> None:
    sources = Sources(Bans(), random.Random(1), first_seconds=0.6)
    data = bytes(4 * PIECE_BYTES)
    content = Content(Kind.FILE, FILE, len(data), lambda _: None)
    line_seconds = PIECE_BYTES / LEAST_BYTES_PER_SECOND
    assert line_seconds == pytest.approx(2.1, abs=0.01)

    async def ask(request: bytes) -> bytes:
        piece = Piece.parse(request)
        await asyncio.sleep(0.3)
        return SIZE.pack(len(data)) + data[piece.offset : piece.offset + piece.length]

    assert await sources.answer(Way(node(2), ask, direct=True), content) == data  # after 1.2 s
    sources.first_seconds = 0.2
    assert await sources.answer(Way(node(2), ask, direct=True), content) is None
    assert node(2) not in sources.bans


async def test_a_ban_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    before = Sources(Bans(tmp_path / "banned"), random.Random(1))
    liar: Sequence[Address] = [node(2)]
    way = _way(node(2), DATA[::-1])

    assert await before.answer(Way(way.node, way.ask, direct=True), wanted()) is None

    assert Sources(Bans(tmp_path / "banned"), random.Random(2)).order(liar) == []
