"""Nodes that find each other, say who they are, and ask each other for things, over a wire in memory."""

from pathlib import Path

import pytest

from ledger.base import Address, Digest, Version
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress, peer_id_bytes
from node.p2p.announcements import NewVersion, Offers
from node.p2p.content import PIECE_BYTES, Kind, Piece
from node.p2p.identity import make_statement
from node.p2p.introductions import MAX_PEERS_PER_NODE
from node.p2p.listening import listening
from node.p2p.named import Named
from node.p2p.protocols import CONTENT, FORWARD, GOSSIP, IDENTITY, PEERS, REACH
from node.p2p.sidecar import Sidecar
from tests.p2p.parts import BLOCK_TIME, DATA, FILE, STAKING, GivenPieces, account, peer_of, secret, town, until, wanted


def knows(one: object, other: object) -> bool:
    return other.peer in one.owners  # type: ignore[attr-defined]


async def test_nodes_that_share_a_bootstrap_peer_find_each_other() -> None:
    async with town() as place:
        first = await place.node(1)
        place.registry.bootstrap.append(place.address(first))
        second, third = await place.node(2), await place.node(3)

        await until(lambda: knows(second, third) and knows(third, second))

        assert first.owners[second.peer] == account(2).address
        assert {said.statement.node for said in third.book.live()} >= {account(1).address, account(2).address}


async def test_a_user_names_a_peer_where_the_chain_names_none() -> None:
    async with town() as place:
        first = await place.node(1)
        second = await place.node(2, bootstrap=(place.address(first),))

        await until(lambda: knows(first, second) and knows(second, first))


async def test_who_has_no_part_in_the_run_is_not_taken() -> None:
    async with town() as place:
        first = await place.node(1)
        stranger = await place.node(2, member=False, bootstrap=(place.address(first),))

        await until(lambda: first.link.asked[IDENTITY] > 0 and not first.link.connected)  # type: ignore[attr-defined]

        assert not first.owners and not stranger.owners


async def test_a_peer_whose_node_leaves_the_run_is_left() -> None:
    async with town() as place:
        first = await place.node(1)
        second = await place.node(2, bootstrap=(place.address(first),))
        await until(lambda: knows(first, second) and knows(second, first))

        place.registry.members.discard(Address(account(2).address))

        await until(lambda: not first.owners)


async def test_somebody_elses_statement_does_not_open_the_door() -> None:
    async with town() as place:
        first, victim = await place.node(1), await place.node(2)
        thief = place.wire.link("a thief")
        statement = make_statement(account(2), STAKING, victim.peer, BLOCK_TIME)
        await thief.dial(place.address(first))

        with pytest.raises(NotFound):
            await thief.ask(first.peer, IDENTITY, statement.encode())

        for protocol in (GOSSIP, PEERS, CONTENT, FORWARD, REACH):
            with pytest.raises(NotFound):
                await thief.ask(first.peer, protocol, b"")
            with pytest.raises(Malformed):
                await first.asked("a thief", protocol, b"")


async def test_one_node_key_is_so_many_peers_and_no_more() -> None:
    async with town() as place:
        first = await place.node(1)
        same = []
        for number in range(20, 20 + MAX_PEERS_PER_NODE + 1):
            node = await place.node(number)
            statement = make_statement(account(2), STAKING, node.peer, BLOCK_TIME)
            place.registry.members.add(Address(account(2).address))
            same.append((node.peer, statement.encode()))

        for peer, statement in same[:-1]:
            await first.asked(peer, IDENTITY, statement)
        with pytest.raises(Malformed, match="no room"):
            await first.asked(same[-1][0], IDENTITY, same[-1][1])


async def test_a_new_version_is_heard_of_by_everybody() -> None:
    async with town() as place:
        first = await place.node(1)
        others = [await place.node(n, bootstrap=(place.address(first),)) for n in (2, 3, 4)]
        await until(lambda: all(knows(first, other) and knows(other, first) for other in others))

        others[0].announce(NewVersion(Version(5), Digest(bytes(32))))

        await until(lambda: all(place.heard[node.peer] for node in (first, *others[1:])))
        assert place.heard[others[2].peer] == [NewVersion(Version(5), Digest(bytes(32)))]


async def test_a_file_comes_by_stream_from_who_offers_it() -> None:
    async with town() as place:
        first = await place.node(1)
        worker = await place.node(2, GivenPieces({FILE: DATA}), inbound=False, bootstrap=(place.address(first),))
        await until(lambda: knows(first, worker) and knows(worker, first))
        worker.announce(Offers((FILE,)))
        await until(lambda: bool(first.holders(FILE)))

        assert first.holders(FILE) == (account(2).address,)
        assert await first.fetch(wanted(), first.holders(FILE)) == DATA


async def test_a_file_comes_through_a_relay_where_neither_can_be_dialled() -> None:
    async with town() as place:
        relay = await place.node(1)
        held = GivenPieces({FILE: DATA})
        worker = await place.node(2, held, inbound=False, bootstrap=(place.address(relay),))
        asker = await place.node(3, inbound=False, bootstrap=(place.address(relay),))
        await until(lambda: knows(relay, worker) and knows(relay, asker) and bool(asker.book.live()))
        await until(lambda: account(2).address in asker.book.heartbeats)

        got = await asker.fetch(wanted(), [Address(account(2).address)])

        assert got == DATA and worker.peer not in asker.owners
        assert held.asked == 5


async def test_a_relay_asks_only_peers_that_are_connected_and_only_for_content() -> None:
    async with town() as place:
        relay = await place.node(1)
        asker = await place.node(3, bootstrap=(place.address(relay),))
        await until(lambda: knows(relay, asker))
        piece = Piece(Kind.FILE, FILE, 0).encode()

        with pytest.raises(NotFound, match="not connected"):
            await relay.asked(asker.peer, FORWARD, peer_id_bytes((await place.node(9)).peer) + piece)
        with pytest.raises(Malformed):
            await relay.asked(asker.peer, FORWARD, peer_id_bytes(asker.peer) + b"anything else")


async def test_content_that_is_too_long_or_does_not_fit_together_is_refused() -> None:
    async with town() as place:
        first = await place.node(1)
        worker = await place.node(2, GivenPieces({FILE: DATA}), bootstrap=(place.address(first),))
        await until(lambda: knows(first, worker) and knows(worker, first))

        with pytest.raises(NotFound):
            await first.fetch(wanted(len(DATA) - 1), [Address(account(2).address)])
        with pytest.raises(Malformed):
            Piece.parse(Piece(Kind.FILE, FILE, 0, PIECE_BYTES + 1).encode())
        with pytest.raises(Malformed):
            Piece.parse(b"\x09" + Piece(Kind.FILE, FILE, 0).encode()[1:])


async def test_a_host_that_is_no_multiaddress_is_announced_without_one() -> None:
    """Others would take such an address for a forgery, and leave whoever passes it on."""
    async with town() as place:
        first = await place.node(1)
        odd = await place.node(2, host="under_score", bootstrap=(place.address(first),))

        await until(lambda: account(2).address in first.book.heartbeats)

        assert (first.book.addresses(), first.gossip.counts.invalid) == ([], 0)
        assert odd.link.address is not None


async def test_losing_every_bootstrap_peer_leaves_the_others_connected() -> None:
    async with town() as place:
        first = await place.node(1)
        place.registry.bootstrap.append(place.address(first))
        second, third = await place.node(2), await place.node(3)
        await until(lambda: knows(second, third) and knows(third, second))

        place.wire.cut(first.peer)
        await until(lambda: first.peer not in second.owners and first.peer not in third.owners)
        second.announce(NewVersion(Version(1), Digest(bytes(32))))

        await until(lambda: bool(place.heard[third.peer]))


async def test_a_network_that_is_lost_is_said_to_be_and_asks_nobody() -> None:
    async with town() as place:
        first = await place.node(1)
        second = await place.node(2, bootstrap=(place.address(first),))
        await until(lambda: knows(second, first))

        second.lost()

        assert not second.owners and not second.gossip.neighbours
        with pytest.raises(NotFound):
            await second.fetch(wanted(), [Address(account(1).address)])


async def test_who_is_not_reached_is_told_what_was_tried_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    async with town() as place:
        first = await place.node(1)
        dead = place.registry.endpoints[Address(account(2).address)] = "http://127.0.0.1:1"
        second = await place.node(2, bootstrap=(place.address(first),), endpoint=dead)
        await until(lambda: knows(first, second) and knows(second, first))

        await second._look_from_outside()

    (line,) = [each for each in caplog.records if "reachable from outside" in each.getMessage()]
    assert (line.levelname, line.getMessage()) == (
        "WARNING",
        "not reachable from outside: forward its port, correct --advertise, or `join` with --no-inbound",
    )
    assert line.fields == {"url": dead, "by": [account(1).address]}  # type: ignore[attr-defined]


async def test_a_named_peer_that_is_not_there_is_warned_of_once_and_said_to_be_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    def said() -> list[tuple[str, str, dict[str, str]]]:
        return [
            (each.levelname, each.getMessage(), {name: str(value) for name, value in each.fields.items()})  # type: ignore[attr-defined]
            for each in caplog.records
            if "--peer" in each.getMessage()
        ]

    async with town() as place:
        absent, unnamed = (PeerAddress("127.0.0.1", 1, peer_of(number)) for number in (1, 9))
        place.registry.bootstrap.append(unnamed)
        second = await place.node(2, bootstrap=(absent,))
        await until(lambda: bool(said()))
        for address in (absent, unnamed):
            await second.seeker.dial(address)
        assert said() == [(
            "WARNING", "a --peer cannot be connected to, trying again",
            {"peer": str(absent), "reason": f"{absent} does not answer"},
        )]  # fmt: skip

        first = await place.node(1)
        await second.seeker.dial(absent)
        await until(lambda: knows(first, second) and knows(second, first))

        assert said()[1:] == [("INFO", "a --peer is connected now", {"peer": first.peer})]


async def test_nothing_is_said_of_a_named_peer_while_libp2p_itself_is_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening("127.0.0.1", 0, True, secret(1)) as taken:
        address = PeerAddress("127.0.0.1", 1, peer_of(2))
        named = Named(Sidecar(taken, tmp_path / "log"), (address,))

        named.failed(address, NotFound("libp2p is off: starting"))

    assert caplog.messages == []
