"""Fetching checkpoints through real sockets from sources that are honest, if slow, and going on after a kill."""

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from ledger.base import Digest
from node.errors import Malformed
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest, build
from node.shards.store import CheckpointStore
from node.shards.wanted import Pace
from node.transport import Timeouts
from node.transport.connections import Connections
from tests.shards.sources import QUICK, answering, contents, downloader, serving, truth


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


async def test_a_checkpoint_arrives_when_one_source_has_it(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
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
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
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


async def test_a_leaf_four_hops_down_has_the_first_chunk_at_once_when_all_waited_for_the_version(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "0")
    base, root = await serving(servers, origin), build(source).root
    first = asyncio.Event()
    loop = asyncio.get_running_loop()
    fetches = []
    for hop in range(1, 5):
        client = downloader(tmp_path / str(hop), http, [base], replace(QUICK, wait_seconds=30))
        client.timeouts = Timeouts()
        fetches.append(asyncio.create_task(client.fetch(root)))
        base = await serving(servers, client.store)
    client.store.subscribe(lambda digests: loop.call_soon_threadsafe(first.set) if digests != [root] else None)
    await asyncio.sleep(0.1)  # everybody has asked and waits
    started = time.monotonic()
    assert await asyncio.to_thread(origin.add, source) == root

    await first.wait()
    took = time.monotonic() - started
    await asyncio.gather(*fetches)

    assert took < 2  # a poll at every hop would take longer than that; alone on a machine it is a tenth of it


async def test_nodes_trade_chunks_when_they_receive_at_the_same_time(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    served: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        """Gives every chunk once: who wants it later has to have it from who has it."""
        kind, name = request.match_info["path"].split("/")[1:]
        if kind == "manifests":
            return web.Response(body=origin.manifest_path(root).read_bytes())
        if kind == "have":
            return web.Response(body=origin.have(root))
        if name in served:
            return web.Response(status=503)
        served.append(name)
        path, offset, length = origin.vouch(bytes.fromhex(name)) or (source, 0, 0)
        return web.Response(body=path.read_bytes()[offset : offset + length])

    pace = replace(QUICK, parallel=1, late_seconds=60.0)
    lists: list[list[str]] = [[await answering(servers, handler)] for _ in range(3)]
    clients = [downloader(tmp_path / str(number), http, others, pace) for number, others in enumerate(lists)]
    for client in clients:
        client.timeouts = Timeouts()
        base = await serving(servers, client.store)
        for other, others in zip(clients, lists, strict=True):
            if other is not client:
                others.append(base)

    folders = await asyncio.gather(*(client.fetch(root) for client in clients))

    assert all(contents(folder) == contents(source) for folder in folders)
    assert len(served) == len(set(served)) == 8


async def test_the_origin_sends_each_chunk_about_once_when_nodes_that_know_each_other_receive_together(
    tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(48):
        (folder / f"{number:02}").write_bytes(bytes([number]) * 10_000)
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(folder)
    served: list[str] = []
    line = asyncio.Lock()

    async def slowly(request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["path"].split("/")[1:]
        if kind == "chunks":
            async with line:
                await asyncio.sleep(0.02)
            served.append(name)
        return web.Response(body=truth(origin, kind, name))  # type: ignore[arg-type]

    first = await answering(servers, slowly)
    clients = [downloader(tmp_path / str(number), http, []) for number in range(4)]
    urls = [await serving(servers, client.store) for client in clients]
    for client, me in zip(clients, urls, strict=True):
        client.sources = partial(list, [first, *(each for each in urls if each != me)])
        client.me = partial(str, me)
        client.timeouts = Timeouts()

    folders = await asyncio.gather(*(client.fetch(root) for client in clients))

    assert all(contents(each) == contents(folder) for each in folders)
    assert 48 <= len(served) <= 64  # of 192 that arrived


async def test_only_what_is_new_is_fetched_when_an_older_version_is_here(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
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


FETCHER = """
    import asyncio, random, sys, time
    from pathlib import Path
    from node.shards.client import Downloader
    from node.shards.selection import Selection
    from node.shards.store import CheckpointStore
    from node.transport.connections import Connections

    async def main(folder, base, root):
        async with Connections(allow_private=True) as http:
            selection = Selection(random.Random(), time.monotonic)
            client = Downloader(CheckpointStore(Path(folder)), http, lambda: [base], selection)
            await client.fetch(bytes.fromhex(root), lambda here, _: print(here, flush=True))

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_download_goes_on_where_it_was_when_its_process_was_killed(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    async with throttled(servers, CheckpointStore(tmp_path / "origin"), source) as (base, root):
        command = [sys.executable, "-c", textwrap.dedent(FETCHER), str(tmp_path / "leaf"), base, root.hex()]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env={**os.environ}
        )
        assert process.stdout is not None
        here = 0
        while here < 5 * CHUNK_BYTES:
            here = int(await process.stdout.readline())
        process.kill()
        await process.communicate()

    seen: list[int] = []
    folder = await downloader(tmp_path / "leaf", http, [base]).fetch(root, lambda count, _: seen.append(count))

    arriving = Pace().parallel * CHUNK_BYTES  # at most, that were counted and not whole yet
    assert 0 < here - arriving <= seen[0]
    assert contents(folder) == contents(source)


async def test_two_downloaders_finish_when_they_share_a_folder(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    async with throttled(servers, CheckpointStore(tmp_path / "origin"), source) as (base, root):
        clients = [downloader(tmp_path / "leaf", http, [base]) for _ in range(2)]
        first, second = await asyncio.gather(*(client.fetch(root) for client in clients))

    assert first == second
    assert contents(first) == contents(source)


async def test_a_version_that_claims_more_than_the_base_is_refused_and_nothing_of_it_is_taken(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    base = origin.add(source)
    most = build(source).size + CHUNK_BYTES
    chunks = -(-most // CHUNK_BYTES)
    fits = origin.begin(Manifest((FileEntry("a", most, (b"1" * 32,) * (chunks - 1) + (b"2" * 32,)),), ()))
    larger = origin.begin(Manifest((FileEntry("a", most + 1, (b"1" * 32,) * (chunks - 1) + (b"2" * 32,)),), ()))
    client = downloader(tmp_path / "leaf", http, [await serving(servers, origin)])
    client.base = base

    with pytest.raises(Malformed, match=rf"claims {most + 1} bytes, and the run's base model has {build(source).size}"):
        await client.fetch(larger)
    assert not list((tmp_path / "leaf" / "partial").iterdir())
    receiving = asyncio.create_task(client.fetch(fits))
    while not (tmp_path / "leaf" / "partial" / fits.hex()).exists():
        assert not receiving.done()
        await asyncio.sleep(0.01)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)


async def test_whoever_has_a_version_hands_on_the_manifest_of_the_base(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    base = origin.add(source)
    (source / "more").write_bytes(b"more")
    later = origin.add(source)
    first = downloader(tmp_path / "first", http, [await serving(servers, origin)])
    first.base = base
    await first.fetch(later)
    second = downloader(tmp_path / "second", http, [await serving(servers, first.store)])
    second.base = base

    assert contents(await second.fetch(later)) == contents(source)
    assert first.store.complete(base) is None
