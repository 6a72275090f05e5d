"""What one node may have of another, beside what its peers may ask of the libp2p process."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from ledger.base import Address, Digest, Version
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress, peer_id_bytes
from node.p2p.announcements import News, NewVersion, announce
from node.p2p.content import Kind, Piece
from node.p2p.identity import make_statement
from node.p2p.limits import CORE_PEERS, MAX_PEERS, MIB
from node.p2p.network import Network
from node.p2p.protocols import CONTENT, FORWARD, IDENTITY
from node.p2p.service import FORWARDS_AT_ONCE, FORWARDS_PER_NODE, FORWARDS_PER_TARGET, piece_seconds
from tests.p2p.parts import (
    BLOCK_TIME,
    FILE,
    SCOPE,
    STAKING,
    GivenPieces,
    SilentPieces,
    Town,
    account,
    peer_of,
    secret,
    town,
    until,
)

PIECE = Piece(Kind.FILE, FILE, 0)


async def come(place: Town, at: Network, peer: int, node: int) -> str:
    """Peer number `peer` says to `at` that it is node number `node`'s."""
    place.registry.members.add(Address(account(node).address))
    statement = make_statement(account(node), STAKING, peer_of(peer), BLOCK_TIME)
    await at.asked(peer_of(peer), IDENTITY, statement.encode())
    return peer_of(peer)


async def test_ordinary_peers_leave_room_for_those_whom_everybody_needs() -> None:
    async with town() as place:
        first = await place.node(1)
        for number in range(2, 2 + MAX_PEERS - CORE_PEERS):
            await come(place, first, number, number)

        with pytest.raises(Malformed, match="no room"):
            await come(place, first, 200, 200)
        place.registry.bootstrap.append(PeerAddress("203.0.113.7", 1, peer_of(201)))
        await come(place, first, 201, 201)

        assert peer_of(201) in first.owners and peer_of(200) not in first.owners
        assert len(first.owners) == 97


async def test_a_node_that_comes_again_as_another_peer_has_what_was_left_of_its_content() -> None:
    async with town() as place:
        first = await place.node(1)
        refused = list[str]()
        for peer in (20, 21):  # of the 64 MiB that a node may have at once, each asks for 50, of what is not here
            asker = await come(place, first, peer, 2)
            asked = (first.asked(asker, CONTENT, PIECE.encode()) for _ in range(50))
            refused += map(str, await asyncio.gather(*asked, return_exceptions=True))
            first.closed(asker)

        assert PIECE.length == MIB
        assert 0 < refused.count("too much at once") <= 28  # 8 MiB come each second, and 8 wait for the next
        assert "too much at once" not in refused[:64]


async def test_who_asks_a_little_faster_than_it_may_is_let_wait_and_not_refused() -> None:
    async with town() as place:
        first = await place.node(1, GivenPieces({FILE: b"rollouts"}))
        asker = await come(place, first, 20, 2)
        wanted = Piece(Kind.FILE, FILE, 0)

        answers = [await first.asked(asker, CONTENT, wanted.encode()) for _ in range(66)]  # MiB, 64 at once

        assert all(answer.endswith(b"rollouts") for answer in answers)


async def test_what_is_forwarded_leaves_when_the_uplink_has_room_for_it() -> None:
    async with town() as place:
        held = GivenPieces()
        relay = await place.node(1, held)
        worker = await place.node(3, GivenPieces({FILE: b"rollouts"}), bootstrap=(place.address(relay),))
        await until(lambda: worker.peer in relay.owners and relay.peer in worker.owners)
        asker = await come(place, relay, 20, 2)

        answer = await relay.asked(asker, FORWARD, peer_id_bytes(worker.peer) + Piece(Kind.FILE, FILE, 0).encode())

        assert held.turns == [(account(2).address, len(answer))]


async def test_one_node_has_only_so_many_pieces_forwarded_at_once() -> None:
    async with town() as place:
        relay = await place.node(1)
        silent = SilentPieces()
        worker = await place.node(3, silent, bootstrap=(place.address(relay),))
        await until(lambda: worker.peer in relay.owners and relay.peer in worker.owners)
        wanted = peer_id_bytes(worker.peer) + PIECE.encode()
        askers = [await come(place, relay, peer, 2) for peer in (20, 21)]

        waiting = [asyncio.create_task(relay.asked(askers[n % 2], FORWARD, wanted)) for n in range(FORWARDS_PER_NODE)]
        await until(lambda: silent.asked == FORWARDS_PER_NODE)
        with pytest.raises(NotFound, match="too much at once"):
            await relay.asked(askers[0], FORWARD, wanted)
        other = await come(place, relay, 22, 4)
        waiting.append(asyncio.create_task(relay.asked(other, FORWARD, wanted)))
        await until(lambda: silent.asked == FORWARDS_PER_NODE + 1)

        await _ended(waiting)
        assert not relay.service.forwards


async def test_a_node_and_its_accomplice_that_never_answers_leave_places_for_others() -> None:
    """They ask for a byte each time, and again as soon as it is over; honest ones are asked for meanwhile."""
    async with town() as place:
        relay = await place.node(1)
        silent, honest = SilentPieces(), GivenPieces({FILE: b"rollouts"})
        accomplice = await place.node(3, silent, bootstrap=(place.address(relay),))
        worker = await place.node(4, honest, bootstrap=(place.address(relay),))
        await until(lambda: {accomplice.peer, worker.peer} <= relay.owners.keys() and relay.peer in worker.owners)
        await until(lambda: relay.peer in accomplice.owners)
        evil = await come(place, relay, 20, 2)
        byte = Piece(Kind.FILE, FILE, 0, 1).encode()

        async def hold() -> None:
            while True:
                with suppress(NotFound):
                    await relay.asked(evil, FORWARD, peer_id_bytes(accomplice.peer) + byte)
                await asyncio.sleep(0.01)

        holding = [asyncio.create_task(hold()) for _ in range(FORWARDS_AT_ONCE)]
        await until(lambda: silent.asked == FORWARDS_PER_NODE)
        validator = await come(place, relay, 21, 5)
        for _ in range(50):
            answer = await relay.asked(validator, FORWARD, peer_id_bytes(worker.peer) + PIECE.encode())
            assert answer.endswith(b"rollouts")
        assert relay.service.forwards.total() == FORWARDS_PER_NODE == 2
        await _ended(holding)


async def test_a_target_that_never_answers_has_only_so_many_places_and_one_asker_half_of_them() -> None:
    async with town() as place:
        relay = await place.node(1)
        silent = SilentPieces()
        target = await place.node(3, silent, bootstrap=(place.address(relay),))
        await until(lambda: target.peer in relay.owners and relay.peer in target.owners)
        wanted = peer_id_bytes(target.peer) + PIECE.encode()
        askers = [await come(place, relay, 20 + number, 20 + number) for number in range(3)]

        waiting = list[asyncio.Task[bytes]]()
        for asker in askers[:2]:
            waiting += [asyncio.create_task(relay.asked(asker, FORWARD, wanted)) for _ in range(FORWARDS_PER_NODE)]
        await until(lambda: silent.asked == FORWARDS_PER_TARGET == 2 * FORWARDS_PER_NODE)
        with pytest.raises(NotFound, match="too much at once"):
            await relay.asked(askers[2], FORWARD, wanted)
        await _ended(waiting)


def test_a_place_is_held_as_long_as_the_piece_is_large() -> None:
    assert [piece_seconds(length) for length in (0, MIB // 2, MIB)] == [4.0, 12.0, 20.0]


async def _ended(tasks: "Sequence[asyncio.Task[bytes] | asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def said(news: News, milliseconds: int) -> bytes:
    statement = make_statement(account(2), STAKING, peer_of(2), BLOCK_TIME)
    return announce(news, SCOPE, secret(2), statement, milliseconds)


async def test_word_of_a_version_that_is_older_than_the_last_one_is_not_heard() -> None:
    async with town() as place:
        first = await place.node(1)
        place.registry.members.add(Address(account(2).address))
        now = int(first.wall() * 1000)
        older, newer = (NewVersion(Version(version), Digest(bytes(32))) for version in (5, 6))

        first.gossip.take(said(newer, now))
        first.gossip.take(said(older, now - 1))

        assert place.heard[first.peer] == [newer]
