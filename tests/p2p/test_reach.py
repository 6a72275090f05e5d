"""Trying whether a node answers: only its own endpoint on chain, seldom, and not for long."""

import asyncio
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from ledger.base import Address
from node.errors import NotFound
from node.p2p.reach import MAX_PROBES, NO, PROBES_BURST, YES, Prober, Reach, reached
from node.transport import session
from tests.clocks import HandClock
from tests.p2p.parts import until

ME, OTHER, THIRD = (Address(f"0x{number:040x}") for number in (1, 2, 3))


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with session(allow_private=True) as made:
        yield made


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers 404 to everything."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_an_endpoint_that_answers_anything_is_reached(http: aiohttp.ClientSession, url: str) -> None:
    assert await Prober(http, {ME: url}.get, HandClock()).answer(ME) == YES


@pytest.mark.parametrize("dead", ["http://127.0.0.1:1", "http://no.such.name.invalid:1", "nonsense", "http://a b:1"])
async def test_an_endpoint_that_does_not_answer_is_not(http: aiohttp.ClientSession, dead: str) -> None:
    assert await Prober(http, {ME: dead}.get, HandClock()).answer(ME) == NO


async def test_a_private_address_is_not_connected_to_on_a_strangers_word(url: str) -> None:
    async with session(allow_private=False) as public:
        assert await Prober(public, {ME: url}.get, HandClock()).answer(ME) == NO


async def test_who_has_no_endpoint_or_asks_too_often_is_refused(http: aiohttp.ClientSession, url: str) -> None:
    prober = Prober(http, {ME: url}.get, HandClock())
    with pytest.raises(NotFound):
        await prober.answer(OTHER)

    for _ in range(int(PROBES_BURST)):
        assert await prober.answer(ME) == YES
    with pytest.raises(NotFound):
        await prober.answer(ME)


async def test_one_node_has_one_probe_at_once_and_leaves_the_others_to_others(http: aiohttp.ClientSession) -> None:
    held, release = list[str](), asyncio.Event()

    async def hold(request: web.Request) -> web.StreamResponse:
        held.append(request.path)
        await release.wait()
        return web.Response(status=404)

    runner = web.AppRunner(app := web.Application())
    app.router.add_get("/{path:.*}", hold)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    prober = Prober(http, lambda _: f"http://127.0.0.1:{runner.addresses[0][1]}", HandClock())
    nodes = [Address(f"0x{number:040x}") for number in range(MAX_PROBES + 1)]
    probes = [asyncio.create_task(prober.answer(nodes[0]))]
    await until(lambda: len(held) == 1)
    with pytest.raises(NotFound):
        await prober.answer(nodes[0])
    probes += [asyncio.create_task(prober.answer(node)) for node in nodes[1:MAX_PROBES]]
    await until(lambda: len(held) == MAX_PROBES)
    with pytest.raises(NotFound):
        await prober.answer(nodes[MAX_PROBES])
    release.set()

    assert await asyncio.gather(*probes) == [YES] * MAX_PROBES
    assert await prober.answer(nodes[MAX_PROBES]) == YES
    await runner.cleanup()


@pytest.mark.parametrize(
    ("words", "reach"),
    [
        ({OTHER: YES, THIRD: NO}, Reach(True, (OTHER,), 5.0)),
        ({OTHER: NO, THIRD: None}, Reach(False, (OTHER,), 5.0)),
        ({OTHER: None, THIRD: b"x"}, Reach()),
        ({}, Reach()),
    ],
)
async def test_one_answer_suffices_and_no_word_is_no_answer(words: dict[Address, bytes | None], reach: Reach) -> None:
    async def ask(peer: str) -> bytes:
        word = words[Address(peer.removeprefix("peer of "))]
        if word is None:
            raise NotFound("busy")
        return word

    peers = [(f"peer of {node}", node) for node in words]

    assert await reached(peers, ask, 5.0, random.Random(1)) == reach
