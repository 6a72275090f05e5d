"""Fetching beside sources that stall, and from such as have nothing or cannot be reached."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from ledger.base import Digest
from node.errors import NotFound
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from node.transport import Timeouts
from node.transport.connections import Connections
from tests.shards.sources import (
    QUICK,
    SOON_SECONDS,
    TIMEOUTS,
    answering,
    contents,
    downloader,
    serving,
    speaking,
    truth,
)

IMPATIENT = replace(QUICK, patience_seconds=0.5)


# --- That stall


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\nabc"])
async def test_the_next_source_is_asked_when_one_stalls(
    head: bytes, source: Path, origin: CheckpointStore, root: Digest, tmp_path: Path, servers: AsyncExitStack,
    http: Connections,
) -> None:  # fmt: skip
    sources = [await speaking(servers, lambda _kind, _name: head, stall=True), await serving(servers, origin)]
    started = time.monotonic()

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)
    assert time.monotonic() - started < 10


async def test_a_checkpoint_arrives_when_a_hundred_and_fifty_strangers_say_they_have_it_and_stall(
    source: Path, origin: CheckpointStore, root: Digest, tmp_path: Path, servers: AsyncExitStack,
    http: Connections,
) -> None:  # fmt: skip
    asked: Counter[str] = Counter()

    async def stall(request: web.Request) -> web.StreamResponse:
        if "/have/" in request.path:
            return web.Response(body=b"\xff")
        asked[request.path.split("/")[3]] += 1
        await asyncio.sleep(30)
        return web.Response()

    pit = await answering(servers, stall)
    strangers = [f"{pit}/{number}" for number in range(150)]
    sources = [await serving(servers, origin), *strangers]
    pace = replace(QUICK, manifest_seconds=1.0)

    folder = await downloader(tmp_path / "leaf", http, sources, pace).fetch(root)

    assert contents(folder) == contents(source)
    assert asked["chunks"] <= 50  # a third of them: every second request goes to the one that has sent a chunk
    assert asked["manifests"] <= 3  # the one that has it stands first, and its answer ends the question


async def test_one_request_at_most_hangs_when_a_source_says_it_has_all_and_stalls(
    source: Path, origin: CheckpointStore, root: Digest, tmp_path: Path, servers: AsyncExitStack,
    http: Connections,
) -> None:  # fmt: skip
    hanging = []

    async def stall(request: web.Request) -> web.StreamResponse:
        if "/have/" in request.path:
            return web.Response(body=b"\xff")
        if "/manifests/" in request.path:
            return web.Response(body=origin.manifest_path(root).read_bytes())
        hanging.append(request.path)
        await asyncio.sleep(60)
        return web.Response()

    sources = [await answering(servers, stall), await serving(servers, origin)]
    client = downloader(tmp_path / "leaf", http, sources)
    client.timeouts = replace(TIMEOUTS, idle_seconds=60.0, total_seconds=60.0)
    started = time.monotonic()

    assert contents(await client.fetch(root)) == contents(source)

    assert len(hanging) <= 1
    assert time.monotonic() - started < 30


async def test_a_source_that_sent_one_chunk_and_then_stalls_delays_the_rest_by_seconds(
    tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    (tmp_path / "many").mkdir()
    for number in range(24):
        (tmp_path / "many" / f"{number:02}").write_bytes(random.Random(number).randbytes(300_000))
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(tmp_path / "many")
    sent: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["path"].split("/")[1:]
        if kind == "chunks":
            if sent:
                await asyncio.sleep(60)
            sent.append(name)
        return web.Response(body=truth(origin, kind, name))  # type: ignore[arg-type]

    sources = [await answering(servers, answer)]
    client = downloader(tmp_path / "leaf", http, sources)
    client.timeouts = Timeouts()  # those of a real node: 20 s for an answer of which nothing comes, 120 s in all
    fetch = asyncio.create_task(client.fetch(root))
    async with asyncio.timeout(60):
        while not sent:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        started = time.monotonic()
        sources.append(await serving(servers, origin))
        sources.append("http://127.0.0.1:1")

        assert contents(await fetch) == contents(tmp_path / "many")
    assert time.monotonic() - started < SOON_SECONDS


# --- That have it not


async def test_not_found_says_how_much_is_missing_when_a_source_has_half(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    half = CheckpointStore(tmp_path / "half")
    root = half.begin(build(source))
    half.write_chunk(root, 0, 0, b"{}")
    client = downloader(tmp_path / "leaf", http, [await serving(servers, half)], replace(IMPATIENT, wait_seconds=1))

    with pytest.raises(NotFound, match=r"25166824 of 25166826 bytes are missing.*does not have it|not asked"):
        await client.fetch(root)


async def test_not_found_is_raised_when_there_are_no_sources(source: Path, tmp_path: Path, http: Connections) -> None:
    with pytest.raises(NotFound, match="there are no sources"):
        await downloader(tmp_path / "leaf", http, [], IMPATIENT).fetch(build(source).root)


# --- That cannot be reached


async def test_a_private_source_is_not_reached_when_the_run_is_no_devnet(
    source: Path, tmp_path: Path, servers: AsyncExitStack
) -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response()

    base = await answering(servers, handler)
    async with Connections(allow_private=False) as public:
        with pytest.raises(NotFound, match=r"127\.0\.0\.1 is not public"):
            await downloader(tmp_path / "leaf", public, [base], IMPATIENT).fetch(build(source).root)
    assert asked == []


@pytest.mark.parametrize(
    "name", ["a..b", ".a", "a" * 64 + ".com", "xn--a", "1", "[fe80::1%25eth0]", "a_b", "-", "localhost:99999", "%00"]
)
async def test_the_right_bytes_arrive_when_another_source_has_a_name_that_cannot_be_looked_up(
    name: str, source: Path, origin: CheckpointStore, tmp_path: Path, servers: AsyncExitStack,
    http: Connections, root: Digest,
) -> None:  # fmt: skip
    client = downloader(tmp_path / "leaf", http, [f"http://{name}", await serving(servers, origin)])

    async with asyncio.timeout(SOON_SECONDS):
        assert contents(await client.fetch(root)) == contents(source)


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".com"])
async def test_the_error_names_a_source_whose_name_cannot_be_looked_up(
    name: str, tmp_path: Path, http: Connections
) -> None:
    client = downloader(tmp_path / "leaf", http, [f"http://{name}"], replace(QUICK, patience_seconds=0.3))

    with pytest.raises(NotFound, match=r"no source had the manifest.*cannot connect to"):
        await client.fetch(Digest(bytes(32)))
