"""What a node hands on between others: how much at once, and whose turn it is when all places are taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from ledger.base import Address
from node.errors import NotFound
from node.p2p.addresses import peer_id_bytes
from node.p2p.content import Kind, Piece
from node.p2p.forwarding import FORWARDS_AT_ONCE, FORWARDS_PER_NODE, FORWARDS_PER_TARGET, FORWARDS_WAITING, Forwards
from node.p2p.limits import MIB
from node.p2p.network import Network
from node.p2p.protocols import FORWARD
from tests.p2p.parts import FILE, GivenPieces, SilentPieces, Town, come, ended, town, until

PIECE = Piece(Kind.FILE, FILE, 0)


def of(number: int) -> Address:
    return Address(f"0x{number:040x}")


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


async def test_one_node_has_only_so_many_pieces_forwarded_at_once_however_many_peers_it_has() -> None:
    async with town() as place:
        relay, silent = await place.node(1), [SilentPieces(), SilentPieces()]
        targets = await connected(place, relay, *silent)
        askers = [await come(place, relay, peer, 2) for peer in (20, 21)]

        async with asking(relay, (askers[0], targets[0]), (askers[1], targets[1])):
            await until(lambda: len(relay.service.forwards.taken) == FORWARDS_PER_NODE)
            for asker in askers:
                with pytest.raises(NotFound, match="too much at once"):
                    await relay.asked(asker, FORWARD, targets[0] + PIECE.encode())
            other = await come(place, relay, 22, 4)
            async with asking(relay, (other, targets[0])):
                await until(lambda: silent[0].asked == 2)

        assert not relay.service.forwards.taken and not relay.service.forwards.waiting


async def test_two_nodes_that_ask_one_for_all_that_they_may_keep_nobody_else_from_it() -> None:
    """They had all its places by two each, and whoever else asked for it was refused."""
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


async def test_who_asks_for_what_never_comes_has_it_only_while_nobody_waits_for_the_place() -> None:
    async with town() as place:
        relay, silent = await place.node(1), SilentPieces()
        relay.service.forwards.still_seconds = 0.2
        (target,) = await connected(place, relay, silent)
        stalling = [await come(place, relay, peer, peer) for peer in range(20, 20 + FORWARDS_PER_TARGET)]

        async with asking(relay, *((peer, target) for peer in stalling)):
            await until(lambda: silent.asked == FORWARDS_PER_TARGET)
            await asyncio.sleep(0.4)
            assert silent.asked == FORWARDS_PER_TARGET  # each is still waited for
            silent.content[FILE] = b"rollouts"
            answer = await relay.asked(await come(place, relay, 30, 30), FORWARD, target + PIECE.encode())

    assert answer.endswith(b"rollouts")


async def test_nodes_and_their_accomplices_that_never_answer_leave_a_place_for_another() -> None:
    async with town() as place:
        relay, silent, held = await place.node(1), [SilentPieces() for _ in range(4)], GivenPieces({FILE: b"rollouts"})
        *accomplices, target = await connected(place, relay, *silent, held)
        evil = [await come(place, relay, peer, peer) for peer in range(20, 20 + FORWARDS_AT_ONCE // 2)]
        honest = await come(place, relay, 40, 40)
        wanted = ((peer, one) for n, peer in enumerate(evil) for one in (accomplices[n % 4], accomplices[(n + 1) % 4]))

        async with asking(relay, *wanted):
            await until(lambda: len(relay.service.forwards.taken) == FORWARDS_AT_ONCE - 1)
            for _ in range(50):
                answer = await relay.asked(honest, FORWARD, target + PIECE.encode())
                assert answer.endswith(b"rollouts")
            assert sum(each.asked for each in silent) == FORWARDS_AT_ONCE - 1


async def test_who_has_fewest_places_is_next_and_who_came_first_among_those() -> None:
    forwards, order = Forwards(), list[int]()
    leave = [asyncio.Event() for _ in range(FORWARDS_PER_TARGET)]

    async def hold(asker: int, target: int, until: asyncio.Event) -> None:
        async with forwards.place(of(asker), of(target)):
            order.append(asker)
            await until.wait()

    never = asyncio.Event()
    tasks = [asyncio.create_task(hold(asker, 100, leave[asker])) for asker in range(FORWARDS_PER_TARGET)]
    await until(lambda: len(order) == FORWARDS_PER_TARGET)
    tasks += [asyncio.create_task(hold(4, 200, never))]  # which has one of another's
    await until(lambda: len(order) == FORWARDS_PER_TARGET + 1)
    tasks += [asyncio.create_task(hold(asker, 100, never)) for asker in (4, 5, 6)]
    await until(lambda: len(forwards.waiting) == 3)

    for event in leave[:3]:
        event.set()
        await asyncio.sleep(0.01)

    assert order[-3:] == [5, 6, 4]
    await ended(tasks)
    assert not forwards.taken and not forwards.waiting


async def test_one_that_waits_behind_what_its_target_gives_to_others_does_not_stand_still() -> None:
    forwards = Forwards(still_seconds=0.3)
    silence = asyncio.get_running_loop().create_future()

    async def ask(asker: int) -> bytes:
        async with forwards.place(of(asker), of(100)) as place:
            return await place.answered(asyncio.shield(silence))

    asked = [asyncio.create_task(ask(asker)) for asker in range(FORWARDS_PER_TARGET)]
    await until(lambda: len(forwards.taken) == FORWARDS_PER_TARGET)
    waiting = asyncio.create_task(ask(50))
    forwards.got_on(of(100), MIB)  # as long again
    forwards.got_on(of(101), 9 * MIB)
    began = asyncio.get_running_loop().time()

    with pytest.raises(NotFound, match="others wait"):
        await asked[0]

    assert 0.5 < asyncio.get_running_loop().time() - began < 2
    await ended([*asked, waiting])  # type: ignore[list-item]


async def test_who_waits_too_long_or_behind_too_many_is_refused() -> None:
    forwards, never = Forwards(wait_seconds=0.1), asyncio.Event()

    async def hold(asker: int) -> None:
        async with forwards.place(of(asker), of(100)):
            await never.wait()

    holding = [asyncio.create_task(hold(asker)) for asker in range(FORWARDS_PER_TARGET)]
    await until(lambda: len(forwards.taken) == FORWARDS_PER_TARGET)
    with pytest.raises(NotFound, match="for too long"):
        await hold(50)
    forwards.wait_seconds = 60
    waiting = [asyncio.create_task(hold(asker)) for asker in range(100, 100 + FORWARDS_WAITING)]
    await until(lambda: len(forwards.waiting) == FORWARDS_WAITING)
    with pytest.raises(NotFound, match="too much at once"):
        await hold(51)
    await ended([*holding, *waiting])


async def test_who_waits_twice_makes_room_for_who_does_not_wait_yet() -> None:
    forwards, never = Forwards(wait_seconds=60), asyncio.Event()

    async def hold(asker: int, target: int) -> None:
        async with forwards.place(of(asker), of(target)):
            await never.wait()

    holding = [asyncio.create_task(hold(asker, 100)) for asker in range(FORWARDS_PER_TARGET)]
    await until(lambda: len(forwards.taken) == FORWARDS_PER_TARGET)
    greedy = range(50, 50 + FORWARDS_WAITING // 2)
    holding += [asyncio.create_task(hold(asker, 100)) for asker in (*greedy, *greedy)]
    await until(lambda: len(forwards.waiting) == FORWARDS_WAITING)

    holding.append(asyncio.create_task(hold(90, 100)))

    await until(lambda: of(90) in [place.asker for place in forwards.waiting] and holding[-2].done())
    assert len(forwards.waiting) == FORWARDS_WAITING
    with pytest.raises(NotFound, match="who have less"):
        await holding[-2]
    with pytest.raises(NotFound, match="too much at once"):
        await hold(90, 100)  # its first one waits already
    await ended(holding)
