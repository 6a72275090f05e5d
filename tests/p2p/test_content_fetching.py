"""Whom content is had from: liars, those that stall, and in what order, over a wire in memory and through a relay."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ledger.base import Address, Digest
from node.bans import Bans
from node.errors import NotFound
from node.p2p.content import Content, Kind, Piece, PieceSource, encode_answer
from node.p2p.fetching import LEAST_BYTES_PER_SECOND, Fetcher
from node.p2p.gossip import sized
from node.p2p.identity import Statement, make_statement
from node.p2p.link import MemoryLink, Nobody
from node.p2p.network import Network
from node.p2p.protocols import FORWARD, GOSSIP, IDENTITY, PEERS
from tests.p2p.parts import (
    BLOCK_TIME,
    DATA,
    FILE,
    STAKING,
    GivenPieces,
    SilentPieces,
    Town,
    account,
    peer_of,
    town,
    until,
    wanted,
)

KIB = 1 << 10
NOBODYS = Content(Kind.FILE, Digest(b"\x08" * 32), 1, lambda _: None)


def node(number: int) -> Address:
    return Address(account(number).address)


async def asker(place: Town, *contents: PieceSource, **options: object) -> tuple[Network, list[Address]]:
    """One that is connected with holders of `contents`, and those."""
    first = await place.node(1, **options)  # type: ignore[arg-type]
    holders = [await place.node(n, held, bootstrap=(place.address(first),)) for n, held in enumerate(contents, 2)]
    await until(lambda: all(one.peer in first.owners and first.peer in one.owners for one in holders))
    return first, [one.myself.address for one in holders]


async def asked_last(first: Network, holder: Address) -> None:
    """Has `holder` asked for what it has not: from now on others come before it."""
    with pytest.raises(NotFound):
        await first.fetch(NOBODYS, [holder])


async def test_who_hands_over_other_bytes_is_banned_and_the_next_is_asked() -> None:
    async with town() as place:
        lies = [GivenPieces({FILE: lie}) for lie in (DATA[:-1] + b"!", DATA + b"!", b"!" * len(DATA))]
        first, (*liars, honest) = await asker(place, *lies, GivenPieces({FILE: DATA}))
        await asked_last(first, honest)

        assert await first.fetch(wanted(), [honest, *liars]) == DATA

        assert all(liar in first.bans for liar in liars) and honest not in first.bans
        assert [held.asked for held in lies] == [5, 1, 5]  # once each; the second says at once that it has more
        with pytest.raises(NotFound):
            await first.fetch(wanted(), liars)
        assert [held.asked for held in lies] == [5, 1, 5]


async def test_who_stalls_is_given_up_in_time_and_asked_last_from_then_on() -> None:
    async with town() as place:
        silent = SilentPieces()
        first, (stalling, honest) = await asker(place, silent, GivenPieces({FILE: DATA}), silent_seconds=0.2)
        await asked_last(first, honest)

        for _ in range(9):
            assert await first.fetch(wanted(), [stalling, honest]) == DATA

        assert silent.asked == 1 and stalling not in first.bans


@dataclass
class ForgingRelay(Nobody):
    """Says whose it is, tells of a node that it hands on for, and makes up whatever that is asked."""

    link: MemoryLink
    statement: Statement
    heartbeats: bytes
    forgery: bytes = encode_answer(1, b"!")
    forged: int = 0

    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        if protocol == IDENTITY:
            self.link.admit(peer, "a node")
        self.forged += protocol == FORWARD
        answers = {
            IDENTITY: self.statement.encode(),
            PEERS: self.heartbeats,
            GOSSIP: b"",
            FORWARD: self.forgery,
        }
        if protocol == FORWARD and self.forged > 1:
            raise NotFound("not connected any more")
        return answers[protocol]


def forging_relay(place: Town, number: int, heartbeats: bytes) -> ForgingRelay:
    """Of node `number`; its peer id is that of nobody else on the wire."""
    place.registry.members.add(node(number))
    peer = peer_of(number)
    link = place.wire.link(peer)
    relay = ForgingRelay(link, make_statement(account(number), STAKING, peer, BLOCK_TIME), heartbeats)
    link.listen(relay)
    return relay


async def test_nobody_is_banned_for_what_a_relay_made_of_it() -> None:
    async with town() as place:
        relay = await place.node(1)
        worker = await place.node(2, GivenPieces({FILE: DATA}), inbound=False, bootstrap=(place.address(relay),))
        await until(lambda: worker.peer in relay.owners and node(2) in relay.book.heartbeats)
        forging = forging_relay(place, 4, sized(relay.book.heartbeats[node(2)].data))
        first = await place.node(3, inbound=False, bootstrap=(place.address(forging.link),))
        await until(lambda: forging.link.peer in first.owners and node(2) in first.book.heartbeats)

        with pytest.raises(NotFound):
            await first.fetch(wanted(), [node(2)])
        assert forging.forged == 1 and node(2) not in first.bans

        await first.link.dial(place.address(relay))
        await until(lambda: relay.peer in first.owners and first.peer in relay.owners)
        assert await first.fetch(wanted(), [node(2)]) == DATA


@dataclass
class Breaking(GivenPieces):
    """Gives two pieces, refuses the third, and so on."""

    offsets: list[int] = field(default_factory=list)

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        answer = await GivenPieces.piece(self, asker, wanted)
        if self.asked % 3 == 0:
            raise NotFound("not now")
        self.offsets.append(wanted.offset)
        return answer


async def test_what_broke_off_is_gone_on_from_where_the_same_peer_has_given_it() -> None:
    async with town() as place:
        breaking = Breaking({FILE: DATA})
        first, (holder,) = await asker(place, breaking)

        for _ in range(7):  # 320 KiB each
            with pytest.raises(NotFound):
                await first.fetch(wanted(), [holder])
        assert await first.fetch(wanted(), [holder]) == DATA

        assert breaking.offsets == [320 * KIB * n + more for n in range(8) for more in (0, 64 * KIB)]
        for _ in range(2):  # of which the first is refused at once
            with pytest.raises(NotFound):
                await first.fetch(wanted(), [holder])
        assert breaking.offsets[16:] == [0, 64 * KIB]  # nothing is left of what was had whole


@pytest.mark.parametrize(("seed", "forged"), [(2, 2), (1, 3)])  # who is asked first then is drawn
async def test_what_a_relay_made_up_in_part_is_not_gone_on_from_by_another(seed: int, forged: int) -> None:
    async with town() as place:
        relay, held = await place.node(1), GivenPieces({FILE: DATA})
        worker = await place.node(2, held, inbound=False, bootstrap=(place.address(relay),))
        await until(lambda: worker.peer in relay.owners and node(2) in relay.book.heartbeats)
        forging = forging_relay(place, 4, sized(relay.book.heartbeats[node(2)].data))
        forging.forgery = encode_answer(len(DATA), b"!" * 1000)
        first = await place.node(3, inbound=False, bootstrap=(place.address(forging.link),))
        await until(lambda: forging.link.peer in first.owners and node(2) in first.book.heartbeats)
        fetcher = Fetcher(first.link, first.owners, first.book, first.bans, random.Random(seed))
        with pytest.raises(NotFound):
            await fetcher.fetch(wanted(), [node(2)])
        assert forging.forged == 2  # it was asked for what comes after its 1000 bytes, in vain

        await first.link.dial(place.address(relay))
        await until(lambda: relay.peer in first.owners and first.peer in relay.owners)

        assert await fetcher.fetch(wanted(), [node(2)]) == DATA
        assert forging.forged == forged and node(2) not in first.bans


async def giver(fetcher: Fetcher, nodes: list[Address], held: dict[Address, GivenPieces]) -> Address:
    """Of `nodes`, all of which have it, who was asked for a file."""
    before = {each: pieces.asked for each, pieces in held.items()}
    assert await fetcher.fetch(Content(Kind.FILE, FILE, 1, lambda _: None), nodes) == b"!"
    (one,) = (each for each, pieces in held.items() if pieces.asked > before[each])
    return one


async def test_the_order_is_drawn_and_who_gave_what_it_was_asked_for_comes_first() -> None:
    async with town() as place:
        pieces = [GivenPieces({FILE: b"!"}) for _ in range(6)]
        first, nodes = await asker(place, *pieces)
        held, rng = dict(zip(nodes, pieces, strict=True)), random.Random(1)
        unknown = [nodes[1], nodes[3], nodes[5]]

        def fetcher_of(bans: Bans) -> Fetcher:
            """One that has asked nobody yet."""
            return Fetcher(first.link, first.owners, first.book, bans, rng)

        assert {await giver(fetcher_of(Bans()), nodes, held) for _ in range(60)} == set(nodes)

        met, bans = set(), Bans()
        bans.add(nodes[0], "it lied")
        for _ in range(15):
            fetcher = fetcher_of(bans)
            assert await giver(fetcher, [nodes[2]], held) == nodes[2]
            with pytest.raises(NotFound):
                await fetcher.fetch(NOBODYS, [nodes[4]])
            assert await giver(fetcher, [*nodes, *nodes], held) == nodes[2]
            met.add(await giver(fetcher, [nodes[0], nodes[4], *unknown], held))
            assert await giver(fetcher, [nodes[0], nodes[4]], held) == nodes[4]
        assert met == set(unknown)


@dataclass
class Dripping(GivenPieces):
    """Gives less than it is asked for, as it may: so little that it does not get on."""

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        return await GivenPieces.piece(self, asker, replace(wanted, length=100))


async def test_a_holder_that_gets_on_has_the_time_of_a_slow_line_and_one_that_drips_has_not() -> None:
    async with town() as place:
        slow, dripping = GivenPieces({FILE: DATA}, seconds=0.2), Dripping({FILE: DATA}, seconds=0.02)
        patient, (holder, dripper) = await asker(place, slow, dripping, silent_seconds=0.4)
        assert pytest.approx(0.01) == 100 / LEAST_BYTES_PER_SECOND  # half of what a drop takes

        assert await patient.fetch(wanted(), [holder]) == DATA  # after a second
        with pytest.raises(NotFound):
            await patient.fetch(wanted(), [dripper])

        assert 10 < dripping.asked < 45 and dripper not in patient.bans


async def test_a_ban_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    async with town() as place:
        lie = GivenPieces({FILE: DATA[::-1]})
        before, (liar,) = await asker(place, lie, bans=Bans(tmp_path / "banned"))
        with pytest.raises(NotFound):
            await before.fetch(wanted(), [liar])
        assert lie.asked == 5

        after = await place.node(9, bans=Bans(tmp_path / "banned"), bootstrap=(place.address(place.nodes[1]),))
        await until(lambda: peer_of(2) in after.owners and after.peer in place.nodes[1].owners)
        with pytest.raises(NotFound):
            await after.fetch(wanted(), [liar])

        assert lie.asked == 5
