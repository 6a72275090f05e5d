"""Fetching beside a source whose answers are none, or end at any byte: it costs a moment, no more."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.base import Digest
from node.errors import NotFound
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.checkpoints import three_chunks
from tests.shards.sources import (
    QUICK,
    SOON_SECONDS,
    Alter,
    Kind,
    altered,
    contents,
    downloader,
    message,
    serving,
    speaking,
    truth,
)

KINDS: list[Kind] = ["manifests", "have", "chunks"]
IMPATIENT = replace(QUICK, patience_seconds=0.5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return three_chunks(tmp_path / "source")


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


# --- Of chunks


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


# --- Of anything


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
    "a portal's page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_the_right_bytes_arrive_when_the_other_source_is_broken(
    kind: str, source: Path, origin: CheckpointStore, root: Digest, tmp_path: Path, servers: AsyncExitStack,
    http: Connections,
) -> None:  # fmt: skip
    sources = [await speaking(servers, lambda _kind, _name: BROKEN[kind]), await serving(servers, origin)]

    folder = await downloader(tmp_path / "leaf", http, sources).fetch(root)

    assert contents(folder) == contents(source)


@pytest.mark.parametrize("kind", BROKEN)
async def test_not_found_says_what_was_tried_when_the_only_source_is_broken(
    kind: str, source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    base = await speaking(servers, lambda _kind, _name: BROKEN[kind])
    client = downloader(tmp_path / "leaf", http, [base, "gopher://x"], IMPATIENT)
    with pytest.raises(NotFound, match="no source had the manifest") as caught:
        await client.fetch(build(source).root)
    assert base in str(caught.value)
    assert "gopher" in str(caught.value)
