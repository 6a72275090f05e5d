"""Every fault of py-libp2p 0.8.1 that a peer could use, tried by peers in processes of their own, over loopback."""

import asyncio
import time
from pathlib import Path

import pytest

from node.errors import Malformed, NotFound
from node.p2p.addresses import public_key
from node.p2p.limits import (
    MAX_BODY_BYTES,
    MAX_BUFFERED_BYTES,
    MAX_UNKNOWN_BUFFERED_BYTES,
    MAX_UNKNOWN_PER_ADDRESS,
    MIB,
)
from node.p2p.protocols import CONTENT, GOSSIP
from tests.p2p.parts import until
from tests.p2p.sidecars import LARGE, hostile, introduced, line_of, sidecars

SOCKET_BUFFERS = 8 * MIB  # what TCP may hold of both sides: sent, and never read


async def test_two_processes_ask_each_other_both_ways_over_one_connection(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (one, other):
        await introduced(one, other)

        started = time.monotonic()
        burst = [one.sidecar.ask(other.peer, GOSSIP, b"%d" % n) for n in range(8)]
        assert await asyncio.gather(*burst) == [b"%d" % n for n in range(8)]
        assert await other.sidecar.ask(one.peer, CONTENT, b"large") == LARGE  # the one that was dialled asks
        with pytest.raises(NotFound, match="refused"):
            await one.sidecar.ask(other.peer, CONTENT, b"no")
        assert time.monotonic() - started < 5
        assert (one.here, other.here) == ([other.peer], [one.peer])


async def test_the_private_key_is_what_the_peer_id_is_of(tmp_path: Path) -> None:
    """Our own encoding of peer ids and py-libp2p's agree."""
    from node.p2p.keys import public_key_of
    from tests.p2p.parts import secret

    async with sidecars(tmp_path) as (node,):
        assert public_key(node.peer) == public_key_of(secret(40))


async def test_a_victims_public_key_without_its_private_one_opens_nothing(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (node, victim):
        async with hostile("plaintext", node, public_key(victim.peer).hex()) as thief:
            assert await line_of(thief) == "refused /plaintext/2.0.0"
            assert await line_of(thief) == "refused /secio/1.0.0"

        assert not node.here


async def test_a_dialled_address_at_which_somebody_else_answers_is_left(tmp_path: Path) -> None:
    from dataclasses import replace

    async with sidecars(tmp_path, 3) as (one, other, third):
        with pytest.raises(NotFound):
            await one.sidecar.dial(replace(other.address, peer=third.peer))

        assert not one.here


@pytest.mark.parametrize("known", [True, False])
async def test_a_window_flood_ends_the_connection_and_memory_stays(tmp_path: Path, known: bool) -> None:
    """py-libp2p grants windows and does not hold a peer to them: 300 MiB were taken of a stream that nobody read."""
    async with sidecars(tmp_path) as (node,):
        before = node.memory_mib()

        async with hostile("flood", node, "introduced" if known else "unknown") as flooder:
            word, sent = (await line_of(flooder)).split()

        most = MAX_BUFFERED_BYTES if known else MAX_UNKNOWN_BUFFERED_BYTES
        assert word == "sent" and int(sent) <= most + SOCKET_BUFFERS
        assert node.memory_mib() - before < 24
        await until(lambda: len(node.gone) == 1)
        assert node.sidecar.starts == 1


async def test_a_reader_that_stalls_holds_up_nobody_else(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (node, honest):
        await introduced(honest, node)
        async with hostile("stall", node) as staller:
            assert await line_of(staller) == "stalled"

            for _ in range(10):
                started = time.monotonic()
                assert await honest.sidecar.ask(node.peer, CONTENT, b"large") == LARGE
                assert time.monotonic() - started < 3
            stalled = next(peer for peer in node.here if peer != honest.peer)
            await until(lambda: stalled in node.gone, 30)  # it took no byte for ten seconds

        assert node.sidecar.starts == 1


async def test_a_peer_that_is_gone_in_the_middle_of_a_request_ends_nothing_else(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (node, honest):
        await introduced(honest, node)
        for _ in range(3):
            async with hostile("vanish", node) as peer:
                assert await line_of(peer) == "going"
        await until(lambda: len(node.gone) == 3)

        assert await honest.sidecar.ask(node.peer, CONTENT, b"still there") == b"still there"
        assert node.sidecar.starts == 1


async def test_a_message_over_the_limit_is_said_to_its_sender(tmp_path: Path) -> None:
    """gossipsub drops it without a word."""
    async with sidecars(tmp_path, 2) as (one, other):
        await introduced(one, other)

        with pytest.raises(Malformed, match="at most"):
            await one.sidecar.ask(other.peer, GOSSIP, bytes(MAX_BODY_BYTES + 1))
        with pytest.raises(NotFound, match="at most 10 are read"):
            await one.sidecar.ask(other.peer, CONTENT, b"large", limit=10)

        assert len(await one.sidecar.ask(other.peer, GOSSIP, bytes(MAX_BODY_BYTES))) == MAX_BODY_BYTES


async def test_an_announced_request_of_gigabytes_is_never_read(tmp_path: Path) -> None:
    async with sidecars(tmp_path) as (node,), hostile("oversize", node) as peer:
        assert (await line_of(peer)).startswith("ended")
        assert not node.asked_for


async def test_a_thousand_connections_leave_room_for_another_address(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (node, honest):
        await introduced(honest, node)
        before = node.memory_mib()
        async with hostile("crowd", node) as crowd:
            word, alive = (await line_of(crowd)).split()
            assert word == "alive" and int(alive) <= MAX_UNKNOWN_PER_ADDRESS
            assert await honest.sidecar.ask(node.peer, CONTENT, b"x") == b"x"
        assert node.memory_mib() - before < 24


async def test_a_peer_that_does_not_answer_costs_its_time_and_no_more(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (one, other):
        await introduced(one, other)
        started = time.monotonic()

        with pytest.raises(NotFound):
            await one.sidecar.ask(other.peer, CONTENT, b"never", seconds=0.5)

        assert time.monotonic() - started < 4
        assert await one.sidecar.ask(other.peer, CONTENT, b"x") == b"x"


async def test_who_does_not_say_who_it_is_may_ask_nothing(tmp_path: Path) -> None:
    async with sidecars(tmp_path, 2) as (one, other):
        await one.sidecar.dial(other.address)

        with pytest.raises(NotFound):
            await one.sidecar.ask(other.peer, CONTENT, b"x")

        assert not other.asked_for
