"""Every fault of py-libp2p 0.8.1 that a peer could use, tried by peers in processes of their own, over loopback.

All are tried at the same process, one after the other: that it still runs, and as it was, is part of what is tested.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from node.errors import Malformed, NotFound
from node.p2p.keys import public_key_of
from node.p2p.limits import (
    MAX_BODY_BYTES,
    MAX_BUFFERED_BYTES,
    MAX_UNKNOWN_BUFFERED_BYTES,
    MAX_UNKNOWN_PER_ADDRESS,
    MIB,
)
from node.p2p.protocols import CONTENT, GOSSIP
from tests.p2p.parts import until
from tests.p2p.sidecars import LARGE, Ear, hostile, introduced, line_of, sidecars

SOCKET_BUFFERS = 8 * MIB  # what TCP may hold of both sides: sent, and never read
GROWTH_MIB = 24.0  # of the process's memory, whatever a peer did

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Scene:
    """`node` is tried; `honest` is connected with it all the while."""

    node: Ear
    honest: Ear
    third: Ear


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with sidecars(tmp_path_factory.mktemp("sidecars"), 3) as ears:
        scene = Scene(*ears)
        await introduced(scene.honest, scene.node)
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def scene(whole: Scene) -> AsyncIterator[Scene]:
    """Afterwards the honest peer is served as before, by the same process, which has not grown."""
    node = whole.node
    before, node.gone = node.memory_mib(), []
    yield whole
    assert await whole.honest.sidecar.ask(node.peer, CONTENT, b"still there") == b"still there"
    assert (node.sidecar.starts, whole.honest.peer in node.gone) == (1, False)
    assert node.memory_mib() - before < GROWTH_MIB


async def test_two_processes_ask_each_other_both_ways_over_one_connection(scene: Scene) -> None:
    node, honest = scene.node, scene.honest
    assert honest.here == [node.peer]  # py-libp2p's spelling of a peer id and ours agree

    burst = [honest.sidecar.ask(node.peer, GOSSIP, b"%d" % n) for n in range(8)]

    assert await asyncio.gather(*burst) == [b"%d" % n for n in range(8)]
    assert await node.sidecar.ask(honest.peer, CONTENT, b"large") == LARGE  # the one that was dialled asks
    with pytest.raises(NotFound, match="refused"):
        await honest.sidecar.ask(node.peer, CONTENT, b"no")


async def test_a_victims_public_key_without_its_private_one_opens_nothing(scene: Scene) -> None:
    victims = public_key_of(scene.honest.sidecar.listening.secret)
    async with hostile("plaintext", scene.node, victims.hex()) as thief:
        assert await line_of(thief) == "refused /plaintext/2.0.0"
        assert await line_of(thief) == "refused /secio/1.0.0"


@pytest.mark.parametrize("length", [1 << 40, 900 << 20, 100_000])
async def test_a_length_that_a_stranger_names_makes_no_room_for_it(scene: Scene, length: int) -> None:
    assert scene.node.sidecar.address is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.node.sidecar.address.port)
    last = (length.bit_length() - 1) // 7  # of the groups of seven bits, the lowest first: unsigned LEB128
    writer.write(bytes(length >> 7 * group & 127 | 128 * (group < last) for group in range(last + 1)))

    async with asyncio.timeout(3):  # py-libp2p itself waits five seconds for what a length announces
        with suppress(ConnectionResetError):
            while await reader.read(100):
                pass
    writer.close()


async def test_a_dialled_address_at_which_somebody_else_answers_is_left(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.third.sidecar.dial(replace(scene.node.address, peer=scene.honest.peer))

    assert not scene.third.here


@pytest.mark.parametrize("known", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_window_flood_ends_the_connection_and_memory_stays(scene: Scene, known: bool) -> None:
    """py-libp2p grants windows and does not hold a peer to them: 300 MiB were taken of a stream that nobody read."""
    async with hostile("flood", scene.node, "introduced" if known else "unknown") as flooder:
        word, sent = (await line_of(flooder)).split()

    most = MAX_BUFFERED_BYTES if known else MAX_UNKNOWN_BUFFERED_BYTES
    assert word == "sent" and int(sent) <= most + SOCKET_BUFFERS
    await until(lambda: len(scene.node.gone) == 1)


async def test_a_reader_that_stalls_holds_up_nobody_else(scene: Scene) -> None:
    node, honest = scene.node, scene.honest
    async with hostile("stall", node) as staller:
        assert await line_of(staller) == "stalled"

        started = time.monotonic()
        for _ in range(4):
            assert await honest.sidecar.ask(node.peer, CONTENT, b"large") == LARGE
        assert time.monotonic() - started < 10  # the staller is given ten seconds for each frame
        await until(lambda: len(node.gone) == 1, 30)


async def test_a_peer_that_is_gone_in_the_middle_of_a_request_ends_nothing_else(scene: Scene) -> None:
    async with hostile("vanish", scene.node) as peer:
        assert await line_of(peer) == "going"

    await until(lambda: len(scene.node.gone) == 1)


async def test_a_message_over_the_limit_is_said_to_its_sender(scene: Scene) -> None:
    """gossipsub drops it without a word."""
    ask, node = scene.honest.sidecar.ask, scene.node

    with pytest.raises(Malformed, match="at most"):
        await ask(node.peer, GOSSIP, bytes(MAX_BODY_BYTES + 1))
    with pytest.raises(NotFound, match="at most 10 are read"):
        await ask(node.peer, CONTENT, b"large", limit=10)

    assert len(await ask(node.peer, GOSSIP, bytes(MAX_BODY_BYTES))) == MAX_BODY_BYTES


async def test_an_announced_request_of_gigabytes_is_never_read(scene: Scene) -> None:
    asked = len(scene.node.asked_for)

    async with hostile("oversize", scene.node) as peer:
        assert (await line_of(peer)).startswith("ended")

    assert len(scene.node.asked_for) == asked


@pytest.mark.slow
async def test_a_thousand_connections_hold_as_many_places_as_one_address_may_have(scene: Scene) -> None:
    async with hostile("crowd", scene.node) as crowd:
        word, alive = (await line_of(crowd)).split()

        assert word == "alive" and int(alive) <= MAX_UNKNOWN_PER_ADDRESS
        assert await scene.honest.sidecar.ask(scene.node.peer, CONTENT, b"x") == b"x"


async def test_a_peer_that_does_not_answer_costs_its_time_and_no_more(scene: Scene) -> None:
    started = time.monotonic()

    with pytest.raises(NotFound):
        await scene.honest.sidecar.ask(scene.node.peer, CONTENT, b"never", seconds=0.5)

    assert time.monotonic() - started < 5


async def test_who_does_not_say_who_it_is_may_ask_nothing(scene: Scene) -> None:
    asked = len(scene.node.asked_for)
    await scene.third.sidecar.dial(scene.node.address)

    with pytest.raises(NotFound):
        await scene.third.sidecar.ask(scene.node.peer, CONTENT, b"x")

    assert len(scene.node.asked_for) == asked
    scene.third.sidecar.drop(scene.node.peer)
    await until(lambda: len(scene.node.gone) == 1)


async def test_a_private_address_is_dialled_only_where_that_is_permitted(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with sidecars(tmp_path_factory.mktemp("public"), private=False) as (public,):
        with pytest.raises(NotFound, match="not public"):
            await public.sidecar.dial(scene.honest.address)
