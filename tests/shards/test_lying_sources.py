"""Sources that send other bytes than they should are banned; nobody is for what the chain's root itself names."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed, StoreError
from node.shards.manifest import CHUNK_BYTES, MAX_FILES, build
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.checkpoints import three_chunks
from tests.shards.sources import (
    SOON_SECONDS,
    Alter,
    Kind,
    altered,
    answering,
    contents,
    downloader,
    message,
    serving,
    speaking,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return three_chunks(tmp_path / "source")


async def test_a_source_is_banned_when_its_manifest_is_not_the_one_asked_for(
    source: Path, origin: CheckpointStore, root: Digest, tmp_path: Path, servers: AsyncExitStack,
    http: Connections,
) -> None:  # fmt: skip
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
