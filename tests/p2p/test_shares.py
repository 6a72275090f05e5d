"""What one node may have of another, beside what its peers may ask of the libp2p process."""

import asyncio

import pytest

from ledger.base import Address, Digest, Version
from node.errors import Malformed
from node.p2p.addresses import PeerAddress, peer_id_bytes
from node.p2p.announcements import News, NewVersion, announce
from node.p2p.content import Kind, Piece
from node.p2p.identity import make_statement
from node.p2p.limits import CORE_PEERS, MAX_PEERS, MIB
from node.p2p.protocols import CONTENT, FORWARD
from tests.p2p.parts import (
    BLOCK_TIME,
    FILE,
    SCOPE,
    STAKING,
    GivenPieces,
    account,
    come,
    peer_of,
    secret,
    town,
    until,
)

PIECE = Piece(Kind.FILE, FILE, 0)


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
            for _ in range(5):
                asked = (first.asked(asker, CONTENT, PIECE.encode()) for _ in range(10))
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
