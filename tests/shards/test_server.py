"""Serving checkpoints, through real sockets."""

import asyncio
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from blake3 import blake3

from node.shards.manifest import CHUNK_BYTES, build
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import Limits, make_app, read_limited, serve, session

A, B = b"a" * CHUNK_BYTES, b"b" * 1000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "weights").write_bytes(A + B)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
async def base(store: CheckpointStore) -> AsyncIterator[str]:
    app = make_app(1000, Limits(request_seconds=5))
    add_routes(app, store)
    runner, port = await serve(app, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}/v1"
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with session(allow_private=True) as opened:
        yield opened


async def get(http: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    async with http.get(url) as response:
        if response.status != 200:
            assert response.content_type == "application/problem+json"
        return response.status, await read_limited(response, 8 << 20)


async def test_manifest_bitmap_and_chunks_are_served_when_a_checkpoint_is_whole(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    root = store.add(source)
    assert await get(http, f"{base}/manifests/{root.hex()}") == (200, build(source).encode())
    assert await get(http, f"{base}/have/{root.hex()}") == (200, b"\x03")
    assert await get(http, f"{base}/chunks/{blake3(A).hexdigest()}") == (200, A)
    assert await get(http, f"{base}/chunks/{blake3(B).hexdigest()}?wait=30") == (200, B)


async def test_only_verified_chunks_are_served_when_a_checkpoint_is_being_received(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    root = store.begin(build(source))
    store.write_chunk(root, 0, 1, B)
    assert await get(http, f"{base}/have/{root.hex()}") == (200, b"\x02")
    assert await get(http, f"{base}/chunks/{blake3(B).hexdigest()}") == (200, B)
    assert (await get(http, f"{base}/chunks/{blake3(A).hexdigest()}"))[0] == 404
    assert await get(http, f"{base}/manifests/{root.hex()}") == (200, build(source).encode())


async def test_what_an_earlier_process_left_is_hashed_before_it_is_served(
    source: Path, store: CheckpointStore, http: aiohttp.ClientSession
) -> None:
    whole = store.folder / "checkpoints" / store.add(source).hex() / "weights"
    whole.chmod(0o644)
    app = make_app(1000, Limits(request_seconds=5))
    add_routes(app, CheckpointStore(store.folder))
    runner, port = await serve(app, "127.0.0.1", 0)
    chunks = f"http://127.0.0.1:{port}/v1/chunks"
    try:
        assert await get(http, f"{chunks}/{blake3(B).hexdigest()}") == (200, B)
        with whole.open("r+b") as file:  # the disk loses a bit
            file.write(b"b")
        assert (await get(http, f"{chunks}/{blake3(A).hexdigest()}"))[0] == 404
        assert not whole.parent.exists()  # to be fetched again
    finally:
        await runner.cleanup()


async def test_what_the_disk_refuses_to_look_at_is_unavailable_for_now(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    """A link to itself in a folder's place is refused like a folder that this user may not enter."""
    store.add(source)
    folder, chunk = store.folder / "checkpoints", f"{base}/chunks/{blake3(B).hexdigest()}"
    folder.rename(store.folder / "aside")
    folder.symlink_to(folder)
    assert (await get(http, chunk))[0] == 503

    folder.unlink()
    (store.folder / "aside").rename(folder)
    assert await get(http, chunk) == (200, B)


async def test_a_waiting_request_is_answered_when_the_chunk_arrives(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    root = store.begin(build(source))
    waiting = asyncio.create_task(get(http, f"{base}/chunks/{blake3(B).hexdigest()}?wait=30"))
    await asyncio.sleep(0.1)
    assert not waiting.done()

    await asyncio.to_thread(store.write_chunk, root, 0, 1, B)

    assert await asyncio.wait_for(waiting, 5) == (200, B)


async def test_a_waiting_request_is_answered_when_the_trainer_publishes(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    waiting = asyncio.create_task(get(http, f"{base}/chunks/{blake3(A).hexdigest()}?wait=30"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(store.add, source)
    assert await asyncio.wait_for(waiting, 5) == (200, A)


async def test_a_waiting_request_is_answered_when_a_manifest_comes(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    manifest = build(source)
    waiting = asyncio.create_task(get(http, f"{base}/manifests/{manifest.root.hex()}?wait=30"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await asyncio.to_thread(store.remember, manifest)
    assert await asyncio.wait_for(waiting, 5) == (200, manifest.encode())


async def test_a_waiting_request_ends_as_not_found_when_nothing_arrives(base: str, http: aiohttp.ClientSession) -> None:
    started = time.monotonic()
    assert (await get(http, f"{base}/chunks/{'0' * 64}?wait=1"))[0] == 404
    assert 0.9 < time.monotonic() - started < 4


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("chunks/" + "0" * 63, 400), ("chunks/" + "0" * 65, 400), ("chunks/" + "A" * 64, 400),
        ("chunks/..%2f..%2fx", 400),
        ("chunks/" + "0" * 64 + "?wait=31", 400), ("chunks/" + "0" * 64 + "?wait=-1", 400),
        ("chunks/" + "0" * 64 + "?wait=1.5", 400), ("chunks/" + "0" * 64 + "?wait=1&wait=1", 400),
        ("chunks/" + "0" * 64 + "?wait=%C2%B2", 400), ("chunks/" + "0" * 64 + "?x=1", 400),
        ("chunks/" + "0" * 64 + "?wait", 400), ("manifests/" + "0" * 64 + "?wait=31", 400),
        ("have/" + "0" * 64 + "?wait=1", 400), ("have/x", 400),
        ("manifests/" + "0" * 64, 404), ("have/" + "0" * 64, 404), ("chunks/", 404), ("files/x", 404), ("", 404),
    ],
)  # fmt: skip
async def test_a_request_is_refused_when_it_is_odd(
    path: str, status: int, base: str, http: aiohttp.ClientSession
) -> None:
    assert (await get(http, f"{base}/{path}"))[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE"])
async def test_a_method_is_refused_when_it_is_not_get(method: str, base: str, http: aiohttp.ClientSession) -> None:
    async with http.request(method, f"{base}/chunks/{'0' * 64}") as response:
        assert response.status == 405


async def test_others_are_served_when_one_reader_stalls(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession
) -> None:
    store.add(source)
    url = f"{base}/chunks/{blake3(A).hexdigest()}"
    host, port = base.removeprefix("http://").removesuffix("/v1").split(":")
    stalled = []
    for _ in range(20):
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        stalled.append(writer)

    assert await asyncio.wait_for(get(http, url), 5) == (200, A)

    for writer in stalled:
        writer.transport.abort()


async def test_a_chunk_is_served_when_another_store_published_its_checkpoint(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    other = CheckpointStore(tmp_path / "store")  # whose publishing the serving store does not notice
    root = store.begin(build(source))
    store.write_chunk(root, 0, 1, B)
    other.begin(build(source))
    other.write_chunk(root, 0, 0, A)
    assert other.complete(root) is not None

    assert await get(http, f"{base}/chunks/{blake3(B).hexdigest()}") == (200, B)


async def test_a_chunk_is_not_found_when_another_store_evicted_its_checkpoint(
    source: Path, store: CheckpointStore, base: str, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    store.add(source)
    CheckpointStore(tmp_path / "store").keep([])
    assert (await get(http, f"{base}/chunks/{blake3(B).hexdigest()}"))[0] == 404


async def test_manifests_that_nobody_reads_take_no_memory(
    store: CheckpointStore, base: str, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Forty ask for a manifest and do not read it: with the bytes in memory it would be there forty times."""
    (tmp_path / "many").mkdir()
    for number in range(400):
        (tmp_path / "many" / f"{number:0100}").write_bytes(number.to_bytes(2))
    root = store.add(tmp_path / "many")
    size = len(store.manifest_path(root).read_bytes())
    host, port = base.removeprefix("http://").removesuffix("/v1").split(":")
    tracemalloc.start()
    stalled = []
    for _ in range(40):
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(f"GET /v1/manifests/{root.hex()} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        stalled.append(writer)
    assert await get(http, f"{base}/manifests/{root.hex()}") == (200, build(tmp_path / "many").encode())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for writer in stalled:
        writer.transport.abort()

    assert size > 70_000
    assert held < 30 * size
