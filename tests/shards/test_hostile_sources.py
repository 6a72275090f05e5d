"""Fetching beside a source that breaks off, stalls or lies at any byte of any answer: it costs a moment, no more."""

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed, NotFound, StoreError
from node.shards.manifest import CHUNK_BYTES, MAX_FILES, build
from node.shards.store import CheckpointStore
from node.transport import Timeouts
from node.transport.connections import Connections
from tests.shards.sources import (
    QUICK,
    Alter,
    Kind,
    answering,
    contents,
    downloader,
    message,
    serving,
    speaking,
    truth,
)

KINDS: list[Kind] = ["manifests", "have", "chunks"]
SOON_SECONDS = 18.0  # on a busy machine; below the 20 that `QUICK` has patience, and that a stalled answer may take


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three chunks: a whole one, a short one, a tiny one."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "weights").write_bytes(random.Random(0).randbytes(CHUNK_BYTES + 300_000))
    return folder


@pytest.fixture
def origin(tmp_path: Path, source: Path) -> CheckpointStore:
    store = CheckpointStore(tmp_path / "origin")
    store.add(source)
    return store


@pytest.fixture
def root(source: Path) -> Digest:
    return build(source).root


async def broken_at(servers: AsyncExitStack, origin: CheckpointStore, kind: Kind, place: float, stall: bool) -> str:
    """Honest but for `kind`, whose answers end after `place` of their bytes: a share below 1, or a number of bytes."""

    def reply(asked: Kind, name: str) -> bytes:
        whole = message(truth(origin, asked, name))
        if asked != kind:
            return whole
        return whole[: int(place * len(whole)) if 0 < place < 1 else int(place)]

    return await speaking(servers, reply, stall=stall)


@pytest.mark.parametrize("stall", [True, False], ids=["stalls", "closes"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_right_bytes_arrive_soon_when_a_source_ends_at_any_byte(
    kind: Kind, stall: bool, source: Path, origin: CheckpointStore, tmp_path: Path, servers: AsyncExitStack,
    http: Connections, root: Digest,
) -> None:  # fmt: skip
    honest = await serving(servers, origin)
    pace = replace(QUICK, manifest_seconds=0.5)

    async def fetched(number: int, place: float) -> None:
        bad = await broken_at(servers, origin, kind, place, stall)
        client = downloader(tmp_path / f"leaf{number}", http, [bad, honest], pace)
        assert contents(await client.fetch(root)) == contents(source), place
        assert client.selection.banned == {}, place  # a line that breaks is no lie

    places = [0, 1, 9, 16, 17, 30, 0.1, 0.5, 0.9, 0.999_999]  # inside the status line, the head, and the body
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(*(fetched(*each) for each in enumerate(places)))


def flipped(at: int) -> Alter:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return flip


LIES: dict[str, Alter] = {
    "first bit": flipped(0),
    "last bit": flipped(-1),
    "another chunk": lambda data: bytes(len(data)),
}
FAILURES: dict[str, Alter] = {
    "one byte short": lambda data: message(data[:-1]),
    "cut short": lambda data: message(data[: len(data) // 2], len(data)),
    "one byte long": lambda data: message(data + b"x"),
    "a gigabyte long": lambda data: message(data, 1 << 30),
    "endless": lambda data: b"HTTP/1.1 200 OK\r\n\r\n" + data + bytes(1 << 20),
    "endless in pieces": lambda data: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000
    ),
    "two lengths": lambda data: message(data, more="Content-Length: 5\r\n"),
    "nothing": lambda data: message(b""),
    "a page": lambda data: message(b"<html>log in</html>", more="Content-Type: text/html\r\n"),
    "404": lambda data: message(b"", status="404 Not Found"),
    "404 of a megabyte": lambda data: message(bytes(1 << 20), status="404 Not Found"),
    "500": lambda data: message(b"oops", status="500 Oops"),
    "206": lambda data: message(data, status="206 Partial Content"),
    "no status": lambda data: b"HTTP/1.1 abc\r\n\r\n" + data,
}


async def altered(servers: AsyncExitStack, origin: CheckpointStore, alter: Alter) -> str:
    """Honest but for its chunks; `alter` makes what is sent of one, head and all."""
    return await speaking(
        servers,
        lambda kind, name: (alter if kind == "chunks" else message)(truth(origin, kind, name)),
    )


@pytest.mark.parametrize("lie", LIES)
async def test_a_source_is_never_asked_again_when_its_chunk_is_wrong(
    lie: str, source: Path, origin: CheckpointStore, tmp_path: Path, servers: AsyncExitStack,
    http: Connections, root: Digest,
) -> None:  # fmt: skip
    liar = await altered(servers, origin, lambda data: message(LIES[lie](data)))
    sources = [liar]
    client = downloader(tmp_path / "leaf", http, sources)
    fetch = asyncio.create_task(client.fetch(root))
    async with asyncio.timeout(SOON_SECONDS):
        while not client.selection.banned:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        sources.append(await serving(servers, origin))

        assert contents(await fetch) == contents(source)
    assert list(client.selection.banned) == [liar]
    assert "wrong chunk" in client.selection.account([liar])


@pytest.mark.parametrize("failure", FAILURES)
async def test_another_source_is_asked_when_one_answers_for_a_chunk_with_something_else(
    failure: str, source: Path, origin: CheckpointStore, tmp_path: Path, servers: AsyncExitStack,
    http: Connections, root: Digest,
) -> None:  # fmt: skip
    bad = await altered(servers, origin, FAILURES[failure])
    client = downloader(tmp_path / "leaf", http, [bad, await serving(servers, origin)])

    async with asyncio.timeout(SOON_SECONDS):
        assert contents(await client.fetch(root)) == contents(source)
    assert client.selection.banned == {}


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_error_names_source_and_answer_when_nobody_else_has_the_chunks(
    failure: str,
    origin: CheckpointStore,
    root: Digest,
    tmp_path: Path,
    servers: AsyncExitStack,
    http: Connections,
) -> None:
    bad = await altered(servers, origin, FAILURES[failure])
    client = downloader(tmp_path / "leaf", http, [bad], replace(QUICK, patience_seconds=0.3))

    with pytest.raises(
        NotFound, match=r"no chunk came for 0 s, 4494306 of 4494306 bytes are missing; asked: http.*: ."
    ) as end:
        await client.fetch(root)
    assert len(str(end.value)) < 700


# --- Patience


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


# --- Names


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


# --- Manifests that the chain's root names: the trainer's own, which no source is to blame for


def canonical(**changes: object) -> bytes:
    file = {"chunks": ["0" * 64], "name": "a", "size": 5} | changes
    return json.dumps({"files": [file], "tensors": []}, separators=(",", ":"), sort_keys=True).encode()


HOSTILE = {
    "a path": (canonical(name="../../escape"), "name"),
    "an absolute path": (canonical(name="/etc/passwd"), "name"),
    "a negative size": (canonical(size=-1), "size"),
    "a huge size": (canonical(size=2**63), "size"),
    "a size without chunks": (canonical(size=1 << 50), "chunks|size"),
    "a million files": (b'{"files":[' + b"{}," * 999_999 + b'{}],"tensors":[]}', "over the limit"),
    "a million chunks": (canonical(chunks=["0" * 64] * 100_000), "chunks"),
    "a million tensors": (b'{"files":[],"tensors":[' + b"[]," * 999_999 + b"[]]}", "over the limit"),
    "one file too many": (
        b'{"files":[' + b",".join(b'{"chunks":[],"name":"%05d","size":0}' % n for n in range(MAX_FILES + 1))
        + b'],"tensors":[]}', "1024",
    ),
    "no JSON": (b"<html>", "JSON"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_manifest_is_refused_by_field_and_leaves_nothing_when_the_root_names_it(
    what: str, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    data, why = HOSTILE[what]
    base = await speaking(servers, lambda _kind, _name: message(data))
    client = downloader(tmp_path / "leaf", http, [base])

    with pytest.raises(Malformed, match=f"^manifest.*({why})") as refusal:
        await client.fetch(Digest(blake3(data).digest()))

    assert len(str(refusal.value)) < 500
    assert client.selection.banned == {}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240
    assert files == [tmp_path / "leaf" / "lock"]


async def test_a_checkpoint_that_no_disk_holds_is_refused_before_a_byte_is_fetched(
    tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    size = 1 << 39  # 512 GiB in 131,072 chunks, as large as a manifest can say: 8 MiB of digests
    digests = [f"{number:064x}" for number in range(size // CHUNK_BYTES // 8)]
    entries = [{"chunks": digests, "name": f"{n}", "size": len(digests) * CHUNK_BYTES} for n in range(7)]
    data = json.dumps({"files": entries, "tensors": []}, separators=(",", ":"), sort_keys=True).encode()
    asked: list[Kind] = []

    def reply(kind: Kind, _: str) -> bytes:
        asked.append(kind)
        return message(data)

    client = downloader(tmp_path / "leaf", http, [await speaking(servers, reply)])
    with pytest.raises(StoreError, match=r"GB, of which .* have to come"):
        await client.fetch(Digest(blake3(data).digest()))
    assert set(asked) == {"manifests"}  # again where the machine is too busy to read 8 MiB in time
