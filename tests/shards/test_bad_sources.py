"""Fetching checkpoints from sources that lie, answer with something else, stall, or have nothing."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.sources import QUICK, TIMEOUTS, answering, contents, downloader, serving

IMPATIENT = replace(QUICK, patience_seconds=0.5)


async def saying(servers: AsyncExitStack, data: bytes, *, stall: bool = False) -> str:
    """A source that sends `data` for every request, and then closes, or says nothing more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            if stall:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    servers.callback(server.close)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_right_bytes_arrive_and_the_liar_is_banned_when_one_of_two_sources_lies(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)

    async def lie(request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["path"].split("/")[1:]
        if kind == "manifests":
            return web.Response(body=origin.manifest_path(root).read_bytes())
        if kind == "have":
            return web.Response(body=b"\xff")
        sources.append(honest)  # who is known only now: which of two is asked first is drawn
        _, _, length = origin.vouch(bytes.fromhex(name)) or (source, 0, 0)
        return web.Response(body=bytes(length))

    honest, liar = await serving(servers, origin), await answering(servers, lie)
    sources = [liar]
    client = downloader(tmp_path / "leaf", http, sources, replace(QUICK, parallel=1))

    folder = await client.fetch(root)

    assert contents(folder) == contents(source)
    assert list(client.selection.banned) == [liar]
    assert "wrong chunk" in client.selection.banned[liar]


async def test_a_source_is_banned_when_its_manifest_is_not_the_one_asked_for(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_bytes(b"backdoor")
    forged = build(tmp_path / "other").encode()

    async def forge(_: web.Request) -> web.StreamResponse:
        return web.Response(body=forged)

    forger = await answering(servers, forge)
    bases = [forger]
    client = downloader(tmp_path / "leaf", http, bases)
    fetch = asyncio.create_task(client.fetch(root))
    async with asyncio.timeout(10):
        while not client.selection.banned:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    bases.append(await serving(servers, origin))

    assert contents(await fetch) == contents(source)
    assert list(client.selection.banned) == [forger]


async def test_a_manifest_is_malformed_and_nobody_is_banned_when_the_root_itself_names_a_hostile_one(
    tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    hostile = b'{"files":[{"chunks":[],"name":"../../escape","size":0}],"tensors":[]}'

    async def serve_it(_: web.Request) -> web.StreamResponse:
        return web.Response(body=hostile)

    client = downloader(tmp_path / "leaf", http, [await answering(servers, serve_it)])
    with pytest.raises(Malformed):
        await client.fetch(Digest(blake3(hostile).digest()))
    assert client.selection.banned == {}
    assert await asyncio.to_thread(lambda: [path.name for path in tmp_path.iterdir()]) == ["leaf"]


HTML = b"<html>captive portal</html>"
BROKEN = {
    "truncated": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc",
    "oversized": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 100_000,
    "endless": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 10_000_000,
    "endless chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 100_000,
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "404 with an endless body": b"HTTP/1.1 404 Not Found\r\n\r\n" + b"x" * 1_000_000,
    "500": b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,
    "packed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_the_right_bytes_arrive_when_the_other_source_is_broken(
    kind: str, source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    sources = [await saying(servers, BROKEN[kind]), await serving(servers, origin)]

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)


@pytest.mark.parametrize("kind", BROKEN)
async def test_not_found_says_what_was_tried_when_the_only_source_is_broken(
    kind: str, source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    base = await saying(servers, BROKEN[kind])
    client = downloader(tmp_path / "leaf", http, [base, "gopher://x"], IMPATIENT)
    with pytest.raises(NotFound, match="no source had the manifest") as caught:
        await client.fetch(build(source).root)
    assert base in str(caught.value)
    assert "gopher" in str(caught.value)


async def test_a_page_is_no_chunk_when_a_portal_answers_for_a_source(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)

    async def portal(request: web.Request) -> web.StreamResponse:
        return web.Response(body=HTML, content_type="text/html")

    client = downloader(tmp_path / "leaf", http, [await answering(servers, portal), await serving(servers, origin)])
    assert contents(await client.fetch(root)) == contents(source)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\nabc"])
async def test_the_next_source_is_asked_when_one_stalls(
    head: bytes, source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    sources = [await saying(servers, head, stall=True), await serving(servers, origin)]
    started = time.monotonic()

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)
    assert time.monotonic() - started < 10


async def test_a_checkpoint_arrives_when_a_hundred_and_fifty_strangers_say_they_have_it_and_stall(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
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
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
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
