"""What a node hands out by chunks: of several stores, of files that lie anywhere, and of files alone."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from blake3 import blake3

from ledger.base import Digest
from node.shards.client import Downloader
from node.shards.manifest import CHUNK_BYTES, build
from node.shards.selection import Selection
from node.shards.server import add_routes
from node.shards.shelves import Shelf, Shelves, Singles
from node.shards.store import CheckpointStore
from node.transport import make_app, read_limited, serve, session
from node.transport.connections import Connections
from tests.shards.checkpoints import checkpoint
from tests.shards.sources import serving

FILE = random.Random(1).randbytes(CHUNK_BYTES + 1000)
HEAD, TAIL = blake3(FILE[:CHUNK_BYTES]).hexdigest(), blake3(FILE[CHUNK_BYTES:]).hexdigest()
WEIGHTS = Digest(bytes(31) + b"w")


async def listening(servers: AsyncExitStack, shelf: Shelf, declines: Callable[[Digest], bool] | None = None) -> str:
    app = make_app(1000)
    add_routes(app, shelf, declines)
    runner, port = await serve(app, "127.0.0.1", 0)
    servers.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{port}"


async def got(asking: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    async with asking.get(url) as response:
        return response.status, await read_limited(response, 8 << 20)


@pytest.fixture
async def asking() -> AsyncIterator[aiohttp.ClientSession]:
    async with session(allow_private=True) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.rollouts"
    path.write_bytes(FILE)
    return path


async def test_a_file_is_handed_out_by_chunks_where_it_lies(
    servers: AsyncExitStack, asking: aiohttp.ClientSession, file: Path
) -> None:
    singles = Singles()
    base = await listening(servers, singles)
    manifest = await asyncio.to_thread(singles.add, file, FILE)

    assert [(each.name, each.size) for each in manifest.files] == [("file.rollouts", len(FILE))]
    assert [chunk.hex() for chunk in manifest.files[0].chunks] == [HEAD, TAIL]
    assert await got(asking, f"{base}/v1/chunks/{TAIL}") == (200, FILE[CHUNK_BYTES:])
    assert await got(asking, f"{base}/v1/have/{manifest.root.hex()}") == (200, b"\x03")
    assert (await got(asking, f"{base}/v1/manifests/{manifest.root.hex()}"))[0] == 404
    await asyncio.to_thread(file.unlink)
    assert (await got(asking, f"{base}/v1/chunks/{HEAD}"))[0] == 404
    assert (await got(asking, f"{base}/v1/have/{manifest.root.hex()}"))[0] == 404


def test_the_files_that_were_asked_for_longest_ago_are_forgotten(tmp_path: Path) -> None:
    singles, digests = Singles(most=2), []
    for number in range(3):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]))
        digests.append(singles.add(path, bytes([number])).files[0].chunks[0])
        singles.add(tmp_path / "0", b"\0")
    assert [singles.vouch(digest) is not None for digest in digests] == [True, False, True]


async def test_a_store_is_among_the_shelves_for_as_long_as_it_is_held(
    servers: AsyncExitStack, asking: aiohttp.ClientSession, tmp_path: Path
) -> None:
    shelves = Shelves(Singles())
    base = await listening(servers, shelves)
    store = CheckpointStore(tmp_path / "store")
    chunk = blake3(b"weights").hexdigest()
    with shelves.holding(store):
        waiting = asyncio.create_task(got(asking, f"{base}/v1/chunks/{chunk}?wait=20"))
        await asyncio.sleep(0.1)
        root = await asyncio.to_thread(store.add, checkpoint(tmp_path / "source", weights=b"weights"))
        assert await asyncio.wait_for(waiting, 5) == (200, b"weights")
        assert (await got(asking, f"{base}/v1/manifests/{root.hex()}"))[0] == 200
    assert (await got(asking, f"{base}/v1/chunks/{chunk}"))[0] == 404


async def test_a_node_that_serves_no_weights_says_so_at_once_and_hands_its_files_out(
    servers: AsyncExitStack, asking: aiohttp.ClientSession, file: Path
) -> None:
    singles = Singles()
    base = await listening(servers, Shelves(singles), lambda root: root == WEIGHTS)
    manifest = await asyncio.to_thread(singles.add, file, FILE)
    began = time.monotonic()

    for path in (f"manifests/{WEIGHTS.hex()}?wait=30", f"have/{WEIGHTS.hex()}"):
        status, body = await got(asking, f"{base}/v1/{path}")
        assert (status, b"serves no weights" in body) == (403, True)
    for path in (f"chunks/{'0' * 64}?wait=30", f"manifests/{'0' * 64}?wait=30", f"have/{'0' * 64}"):
        assert (await got(asking, f"{base}/v1/{path}"))[0] == 404  # of a file that may come
    assert time.monotonic() - began < 5
    assert await got(asking, f"{base}/v1/chunks/{HEAD}") == (200, FILE[:CHUNK_BYTES])
    assert await got(asking, f"{base}/v1/have/{manifest.root.hex()}") == (200, b"\x03")
    assert (await got(asking, f"{base}/v1/chunks/x"))[0] == 400


async def test_who_serves_no_weights_is_asked_once_and_then_left_alone(
    servers: AsyncExitStack, http: Connections, source: Path, tmp_path: Path
) -> None:
    """Of a source that declines, and an honest one that has to be asked for each of eight chunks."""
    store = CheckpointStore(tmp_path / "origin")
    root = await asyncio.to_thread(store.add, source)
    asked = 0

    class Counted(Singles):
        def vouch(self, digest: bytes) -> None:
            nonlocal asked
            asked += 1

    urls = [await listening(servers, Counted(), lambda asked_for: asked_for == root), await serving(servers, store)]
    selection = Selection(random.Random(), time.monotonic)
    downloader = Downloader(CheckpointStore(tmp_path / "here"), http, lambda: urls, selection)

    folder = await downloader.fetch(root)

    assert build(folder).root == root
    assert asked <= 2  # at most as many as had been sent before the first was answered
    assert urls[0] not in selection.usable(urls)
    assert "serves no weights" in selection.account(urls)
