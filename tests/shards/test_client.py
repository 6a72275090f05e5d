"""Fetching checkpoints through real sockets, from sources that are honest, slow, broken or lying."""

import asyncio
import os
import random
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.manifest import CHUNK_BYTES, build
from node.shards.store import CheckpointStore
from node.transport import Timeouts, session
from tests.shards.sources import QUICK, TIMEOUTS, answering, contents, downloader, serving

IMPATIENT = replace(QUICK, patience_seconds=0.5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Eight chunks."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "weights").write_bytes(random.Random(0).randbytes(6 * CHUNK_BYTES + 1000))
    return folder


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


@asynccontextmanager
async def throttled(servers: AsyncExitStack, store: CheckpointStore, source: Path) -> AsyncIterator[tuple[str, Digest]]:
    """A source that receives a chunk every 50 ms itself."""
    manifest = build(source)
    root = store.begin(manifest)

    async def receive() -> None:
        for index, file in enumerate(manifest.files):
            data = (source / file.name).read_bytes()
            for chunk in range(len(file.chunks)):
                await asyncio.sleep(0.05)
                piece = data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
                await asyncio.to_thread(store.write_chunk, root, index, chunk, piece)

    task = asyncio.create_task(receive())
    try:
        yield await serving(servers, store), root
    finally:
        await task


# --- Honest sources


async def test_a_checkpoint_arrives_when_one_source_has_it(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    seen: list[tuple[int, int]] = []
    client = downloader(tmp_path / "leaf", http, [await serving(servers, origin)])

    folder = await client.fetch(root, lambda here, in_all: seen.append((here, in_all)))

    total = 2 + 6 * CHUNK_BYTES + 1000
    assert contents(folder) == contents(source)
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert [here for here, _ in seen] == sorted({here for here, _ in seen})
    assert await client.fetch(root) == folder


async def test_a_chain_ends_with_the_first_hop_when_every_parent_is_still_receiving(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    async with throttled(servers, CheckpointStore(tmp_path / "0"), source) as (base, root):
        fetches = []
        for hop in range(1, 4):
            client = downloader(tmp_path / str(hop), http, [base])
            fetches.append(asyncio.create_task(client.fetch(root)))
            base = await serving(servers, client.store)
        started = time.monotonic()
        folders = await asyncio.gather(*fetches)
        took = time.monotonic() - started

    assert all(contents(folder) == contents(source) for folder in folders)
    assert took < 5  # not after a poll or a time-out somewhere, on however slow a machine


async def test_nodes_trade_chunks_when_they_receive_at_the_same_time(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    served: list[str] = []
    slow = asyncio.Semaphore(1)

    async def handler(request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["path"].split("/")[1:]
        if kind == "manifests":
            return web.Response(body=origin.manifest_path(root).read_bytes())
        if kind == "have":
            return web.Response(body=origin.have(root))
        async with slow:
            await asyncio.sleep(0.2)
        served.append(name)
        path, offset, length = origin.locate(bytes.fromhex(name)) or (source, 0, 0)
        return web.Response(body=path.read_bytes()[offset : offset + length])

    pace = replace(QUICK, parallel=1, late_seconds=5.0)
    lists: list[list[str]] = [[await answering(servers, handler)] for _ in range(3)]
    clients = [downloader(tmp_path / str(number), http, others, pace) for number, others in enumerate(lists)]
    for seed, client in enumerate(clients):
        client.rng.seed(seed)
        client.timeouts = Timeouts()
        base = await serving(servers, client.store)
        for other, others in zip(clients, lists, strict=True):
            if other is not client:
                others.append(base)

    folders = await asyncio.gather(*(client.fetch(root) for client in clients))

    assert all(contents(folder) == contents(source) for folder in folders)
    assert len(served) < 3 * 8  # as many without trading


async def test_only_what_is_new_is_fetched_when_an_older_version_is_here(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    old = origin.add(source)
    client = downloader(tmp_path / "leaf", http, [await serving(servers, origin)])
    await client.fetch(old)
    with (source / "weights").open("r+b") as file:
        file.seek(3 * CHUNK_BYTES)
        file.write(b"new weights")
    root = origin.add(source)
    seen: list[int] = []

    folder = await client.fetch(root, lambda here, _: seen.append(here))

    total = 2 + 6 * CHUNK_BYTES + 1000
    assert seen == [total - CHUNK_BYTES, total]
    assert contents(folder) == contents(source)


# --- Lying sources


async def test_the_right_bytes_arrive_and_the_liar_is_banned_when_one_of_two_sources_lies(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
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
        _, _, length = origin.locate(bytes.fromhex(name)) or (source, 0, 0)
        return web.Response(body=bytes(length))

    honest, liar = await serving(servers, origin), await answering(servers, lie)
    sources = [liar]
    client = downloader(tmp_path / "leaf", http, sources, replace(QUICK, parallel=1))

    folder = await client.fetch(root)

    assert contents(folder) == contents(source)
    assert list(client.selection.banned) == [liar]
    assert "wrong chunk" in client.selection.banned[liar]


async def test_a_source_is_banned_when_its_manifest_is_not_the_one_asked_for(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
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
    tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
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
    kind: str, source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    sources = [await saying(servers, BROKEN[kind]), await serving(servers, origin)]

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)


@pytest.mark.parametrize("kind", BROKEN)
async def test_not_found_says_what_was_tried_when_the_only_source_is_broken(
    kind: str, source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    base = await saying(servers, BROKEN[kind])
    client = downloader(tmp_path / "leaf", http, [base, "gopher://x"], IMPATIENT)
    with pytest.raises(NotFound, match="no source had the manifest") as caught:
        await client.fetch(build(source).root)
    assert base in str(caught.value)
    assert "gopher" in str(caught.value)


async def test_a_page_is_no_chunk_when_a_portal_answers_for_a_source(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)

    async def portal(request: web.Request) -> web.StreamResponse:
        return web.Response(body=HTML, content_type="text/html")

    client = downloader(tmp_path / "leaf", http, [await answering(servers, portal), await serving(servers, origin)])
    assert contents(await client.fetch(root)) == contents(source)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\nabc"])
async def test_the_next_source_is_asked_when_one_stalls(
    head: bytes, source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    sources = [await saying(servers, head, stall=True), await serving(servers, origin)]
    started = time.monotonic()

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)
    assert time.monotonic() - started < 10


async def test_a_checkpoint_arrives_when_a_hundred_and_fifty_strangers_say_they_have_it_and_stall(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
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
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
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
        await asyncio.sleep(5)
        return web.Response()

    sources = [await answering(servers, stall), await serving(servers, origin)]
    client = downloader(tmp_path / "leaf", http, sources)
    client.timeouts = replace(TIMEOUTS, idle_seconds=30.0, total_seconds=30.0)
    started = time.monotonic()

    assert contents(await client.fetch(root)) == contents(source)

    assert len(hanging) <= 1
    assert time.monotonic() - started < 5


async def test_not_found_says_how_much_is_missing_when_a_source_has_half(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    half = CheckpointStore(tmp_path / "half")
    root = half.begin(build(source))
    half.write_chunk(root, 0, 0, b"{}")
    client = downloader(tmp_path / "leaf", http, [await serving(servers, half)], replace(IMPATIENT, wait_seconds=1))

    with pytest.raises(NotFound, match=r"25166824 of 25166826 bytes are missing.*does not have it|not asked"):
        await client.fetch(root)


async def test_not_found_is_raised_when_there_are_no_sources(
    source: Path, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
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
    async with session(allow_private=False) as public:
        with pytest.raises(NotFound, match=r"127\.0\.0\.1 is not public"):
            await downloader(tmp_path / "leaf", public, [base], IMPATIENT).fetch(build(source).root)
    assert asked == []


# --- Kills


FETCHER = """
    import asyncio, sys
    from pathlib import Path
    from node.shards.client import Downloader
    from node.shards.store import CheckpointStore
    from node.transport import session

    async def main(folder, base, root):
        async with session(allow_private=True) as http:
            client = Downloader(CheckpointStore(Path(folder)), http, lambda: [base])
            await client.fetch(bytes.fromhex(root), lambda here, _: print(here, flush=True))

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_download_goes_on_where_it_was_when_its_process_was_killed(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    async with throttled(servers, CheckpointStore(tmp_path / "origin"), source) as (base, root):
        command = [sys.executable, "-c", textwrap.dedent(FETCHER), str(tmp_path / "leaf"), base, root.hex()]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env={**os.environ}
        )
        assert process.stdout is not None
        here = 0
        while here < 3 * CHUNK_BYTES:
            here = int(await process.stdout.readline())
        process.kill()
        await process.communicate()

    seen: list[int] = []
    folder = await downloader(tmp_path / "leaf", http, [base]).fetch(root, lambda count, _: seen.append(count))

    assert seen[0] >= here
    assert contents(folder) == contents(source)


async def test_two_downloaders_finish_when_they_share_a_folder(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: aiohttp.ClientSession
) -> None:
    async with throttled(servers, CheckpointStore(tmp_path / "origin"), source) as (base, root):
        clients = [downloader(tmp_path / "leaf", http, [base]) for _ in range(2)]
        first, second = await asyncio.gather(*(client.fetch(root) for client in clients))

    assert first == second
    assert contents(first) == contents(source)
