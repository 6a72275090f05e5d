"""What a node hands on between others: whose turn it is at the line of the one who is asked, and how much at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from ledger.base import Address
from node.errors import NotFound
from node.p2p.addresses import peer_id_bytes
from node.p2p.content import PIECE_BYTES, Kind, Piece
from node.p2p.forwarding import FORWARDS_AT_ONCE, LINE_AT_ONCE, Forwards, Line
from node.p2p.limits import MAX_NODES
from node.p2p.network import Network
from node.p2p.pace import Pace
from node.p2p.protocols import FORWARD
from tests.p2p.parts import FILE, GivenPieces, SilentPieces, Town, come, ended, town, until

KIB = 1 << 10
PIECE = Piece(Kind.FILE, FILE, 0)


def of(number: int) -> Address:
    return Address(f"0x{number:040x}")


@dataclass
class Sender:
    """A line by hand: what it is asked for is sent when the test says so."""

    line: Line = field(default_factory=Line)
    sent: list[tuple[int, int]] = field(default_factory=list)  # by whom it was asked, and how many bytes
    under_way: list[asyncio.Event] = field(default_factory=list)  # who came first is first

    def ask(self, asker: int, length: int = PIECE_BYTES) -> "asyncio.Task[bytes]":
        async def send(piece: Piece) -> bytes:
            self.sent.append((asker, piece.length))
            self.under_way.append(whole := asyncio.Event())
            await whole.wait()
            return bytes(piece.length)

        return asyncio.create_task(self.line.ask(of(asker), Piece(Kind.FILE, FILE, 0, length), send))

    async def whole(self) -> None:
        """The oldest piece under way is."""
        self.under_way.pop(0).set()
        for _ in range(5):
            await asyncio.sleep(0)


async def connected(place: Town, relay: Network, *held: SilentPieces | GivenPieces) -> list[bytes]:
    """Nodes that nobody but `relay` is connected with, by what a request names them."""
    nodes = [await place.node(n, each, bootstrap=(place.address(relay),)) for n, each in enumerate(held, 3)]
    await until(lambda: all(one.peer in relay.owners and relay.peer in one.owners for one in nodes))
    return [peer_id_bytes(one.peer) for one in nodes]


@asynccontextmanager
async def asking(relay: Network, *asked: tuple[str, bytes]) -> AsyncIterator[None]:
    """Who asks whom for a piece, again as soon as it is over, while the block runs."""

    async def ask(asker: str, target: bytes) -> None:
        while True:
            with suppress(NotFound):
                await relay.asked(asker, FORWARD, target + PIECE.encode())
            await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(ask(*each)) for each in asked]
    try:
        yield
    finally:
        await ended(tasks)


async def test_two_nodes_that_ask_one_for_all_that_they_may_keep_nobody_else_from_it() -> None:
    async with town() as place:
        relay, held = await place.node(1), GivenPieces({FILE: b"rollouts"}, seconds=0.01)
        (target,) = await connected(place, relay, held)
        attackers = [await come(place, relay, peer, peer // 2) for peer in (20, 21, 22, 23)]
        honest = await come(place, relay, 24, 5)

        async with asking(relay, *((peer, target) for peer in attackers)):
            await until(lambda: held.asked > 4)
            for _ in range(20):
                answer = await relay.asked(honest, FORWARD, target + PIECE.encode())
                assert answer.endswith(b"rollouts")


async def test_nodes_and_their_accomplices_that_never_answer_keep_nobody_from_anothers_line() -> None:
    """Sixteen nodes ask each other for all that they may."""
    async with town() as place:
        relay, silent, held = await place.node(1), [SilentPieces() for _ in range(4)], GivenPieces({FILE: b"rollouts"})
        *accomplices, target = await connected(place, relay, *silent, held)
        evil = [await come(place, relay, peer, peer) for peer in range(20, 20 + FORWARDS_AT_ONCE // 2)]
        honest = [await come(place, relay, peer, peer) for peer in (40, 41, 42)]
        wanted = ((peer, accomplices[n % 4]) for n, peer in enumerate(evil) for _ in range(3))

        async with asking(relay, *wanted):
            await until(lambda: len(relay.service.forwards.places) == FORWARDS_AT_ONCE)
            for _ in range(50):
                asked = (relay.asked(peer, FORWARD, target + PIECE.encode()) for peer in honest)
                assert all(answer.endswith(b"rollouts") for answer in await asyncio.gather(*asked))

        assert len(relay.service.forwards.places) == 0


@dataclass
class Lavish(GivenPieces):
    """Gives more than is asked for."""

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        return await super().piece(asker, replace(wanted, length=PIECE_BYTES))


async def test_no_more_is_handed_on_than_was_asked_for_and_is_counted() -> None:
    async with town() as place:
        relay = await place.node(1)
        (target,) = await connected(place, relay, Lavish({FILE: b"rollouts"}))
        asker = await come(place, relay, 24, 5)

        assert (await relay.asked(asker, FORWARD, target + PIECE.encode())).endswith(b"rollouts")
        with pytest.raises(NotFound):
            await relay.asked(asker, FORWARD, target + replace(PIECE, length=7).encode())


async def test_a_turn_is_one_however_little_is_asked_for_in_it() -> None:
    """Who asked for a byte at a time had the line of all others: it had cost six round trips, and counted as a byte."""
    sender = Sender()
    asked = [sender.ask(asker) for asker in (1, 2, 1, 2)] + [sender.ask(3, 1)]
    await until(lambda: len(sender.sent) == 2)

    await sender.whole()
    asked += [sender.ask(3, 1), sender.ask(3, 1), sender.ask(3, 1)]
    for _ in range(7):
        await sender.whole()

    assert [asker for asker, _ in sender.sent] == [1, 2, 3, 1, 2, 3, 3, 3]
    await asyncio.gather(*asked)


async def test_who_comes_late_has_no_turns_for_what_it_did_not_ask_for() -> None:
    sender = Sender()
    asked = [sender.ask(asker) for asker in (1, 1, 1, 1, 1, 1)]
    for _ in range(4):
        await until(lambda: bool(sender.under_way))
        await sender.whole()
    asked += [sender.ask(2) for _ in range(3)] + [sender.ask(1)]
    for _ in range(6):
        await sender.whole()

    assert [asker for asker, _ in sender.sent] == [1, 1, 1, 1, 1, 1, 2, 2, 1, 2]
    await asyncio.gather(*asked)


async def test_pieces_are_so_small_that_all_who_ask_have_one_in_a_round() -> None:
    sender = Sender()
    sender.line.pace.size = PIECE_BYTES  # of each of two at once
    asked = [sender.ask(asker) for asker in range(6)]

    for _ in range(6):
        await until(lambda: bool(sender.under_way))
        await sender.whole()

    assert [length // KIB for _, length in sender.sent] == [1024, 1024, 2048 // 5, 2048 // 4, 2048 // 3, 1024]
    await asyncio.gather(*asked)


async def test_who_leaves_makes_room_whether_it_waits_or_not() -> None:
    sender = Sender()
    asked = [sender.ask(asker) for asker in range(6)]
    await until(lambda: len(sender.sent) == LINE_AT_ONCE)

    await ended([asked[0], asked[3]])

    assert [asker for asker, _ in sender.sent] == [0, 1, 2]
    assert sender.line.queue.owners == {of(4), of(5)}
    await ended(asked)
    assert not sender.line.queue.owners and not sender.line.under_way


def test_a_pace_follows_what_a_line_sends_and_rises_fourfold_at_most() -> None:
    pace = Pace(2.0)
    sizes = [pace.size]
    for size, seconds in [
        (64 * KIB, 0.01),  # fourfold
        (256 * KIB, 1.0),  # twice as much in two seconds
        (512 * KIB, 0.1),
        (1, 0.1),  # which says nothing
        (1024 * KIB, 8.0),
        (0, 0.1),  # refused at once
        (0, 5.0),  # waited for in vain
        (1, 5.0),  # behind another's
    ]:
        pace.came(size, seconds)
        sizes.append(pace.size)

    assert [size // KIB for size in sizes] == [64, 256, 512, 1024, 1024, 256, 256, 128, 128]


async def test_lines_are_remembered_and_the_longest_unasked_is_forgotten() -> None:
    forwards = Forwards()
    first, second = forwards.line(of(1)), forwards.line(of(2))
    for number in range(3, 3 + MAX_NODES - 1):
        assert forwards.line(of(1)) is first
        forwards.line(of(number))

    assert len(forwards.lines) == MAX_NODES
    assert forwards.line(of(1)) is first and forwards.line(of(2)) is not second
