"""Answering peers through real sockets, whatever they send."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from ledger.base import Digest, RunId
from ledger.errors import Unreachable
from ledger.messages import Have, SignedMessage
from node.errors import Malformed, NotFound, StoreError
from node.peers.server import LEAST_UPLOAD_BYTES, MAX_VERDICTS_BYTES, NotYet, add_routes
from node.peers.wire import MAX_JSON_BYTES, BatchAnswer, SignedBatch, encode_verdicts, parse_batch, parse_verdicts
from node.transport import make_app, read_limited, serve, session

KNOWN, UNKNOWN, HELD, BROKEN = (Digest(bytes([n]) * 32) for n in (1, 2, 3, 4))
MESSAGE = SignedMessage("Have", Have(KNOWN, 5), bytes(65))
LIMIT = 1000


class Box:
    """A mailbox in memory: it knows KNOWN and HELD, holds the file of HELD, and cannot ask the chain about BROKEN."""

    max_file_bytes = LIMIT

    def __init__(self, folder: Path) -> None:
        self.file = folder / "file"
        self.file.write_bytes(b"rollouts")
        self.taken: dict[Digest, bytes] = {}
        self.said: list[SignedMessage] = []

    async def submission(self, commitment: Digest) -> Path:
        if commitment != HELD:
            raise NotFound("not here")
        return self.file

    async def manifest(self, commitment: Digest) -> bytes:
        if commitment != HELD:
            raise NotFound("not here")
        return b'{"files":[],"tensors":[]}'

    async def wants_submission(self, commitment: Digest) -> bool:
        if commitment == BROKEN:
            raise Unreachable("secret endpoint https://rpc.example/key")
        if commitment not in {KNOWN, HELD}:
            raise NotYet("not seen yet")
        return commitment == KNOWN

    async def take_submission(self, commitment: Digest, data: bytes) -> None:
        if data == b"bad":
            raise Malformed("does not hash to the root")
        if data == b"full":
            raise StoreError("disk full")
        self.taken[commitment] = data

    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]:
        return [MESSAGE]

    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        self.said += messages

    async def batch(self, commitment: Digest) -> SignedBatch:
        return SignedBatch(RunId(3), (commitment,), (bytes(65),))

    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        return BatchAnswer(None, tuple(commitments))

    async def evidence(self, digest: Digest) -> Path:
        return self.file.parent / "deleted"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@pytest.fixture
async def base(box: Box) -> AsyncIterator[str]:
    app = make_app(MAX_JSON_BYTES)
    add_routes(app, box)
    runner, port = await serve(app, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}/v1"
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with session(allow_private=True) as opened:
        yield opened


async def ask(http: aiohttp.ClientSession, method: str, url: str, body: object = None) -> tuple[int, bytes]:
    async with http.request(method, url, data=body) as response:
        if response.status >= 400:
            assert response.content_type == "application/problem+json"
        return response.status, await read_limited(response, 1 << 20)


async def test_files_verdicts_and_batches_are_given_out(base: str, http: aiohttp.ClientSession) -> None:
    assert await ask(http, "GET", f"{base}/submissions/0x{HELD.hex()}") == (200, b"rollouts")
    manifest = await ask(http, "GET", f"{base}/submissions/0x{HELD.hex()}/manifest")
    assert manifest == (200, b'{"files":[],"tensors":[]}')
    status, body = await ask(http, "GET", f"{base}/verdicts/{KNOWN.hex()}")
    assert (status, parse_verdicts(body)) == (200, (MESSAGE,))
    status, body = await ask(http, "GET", f"{base}/batches/{KNOWN.hex()}")
    assert (status, parse_batch(body)) == (200, SignedBatch(RunId(3), (KNOWN,), (bytes(65),)))


async def test_files_verdicts_and_proposals_are_taken(base: str, http: aiohttp.ClientSession, box: Box) -> None:
    assert await ask(http, "POST", f"{base}/submissions/{KNOWN.hex()}", b"x" * LIMIT) == (204, b"")
    assert await ask(http, "POST", f"{base}/verdicts/{KNOWN.hex()}", encode_verdicts([MESSAGE])) == (204, b"")
    status, body = await ask(
        http, "POST", f"{base}/batches", json.dumps({"run": 1, "commitments": ["0x" + KNOWN.hex()]})
    )

    assert box.taken == {KNOWN: b"x" * LIMIT}
    assert box.said == [MESSAGE]
    assert (status, json.loads(body)) == (200, {"signature": None, "refused": ["0x" + KNOWN.hex()]})


@pytest.mark.parametrize(
    ("commitment", "body", "status"),
    [
        (UNKNOWN, b"x", 425),  # the sender repeats
        (HELD, b"x", 204),  # not read: it is here
        (BROKEN, b"x", 503),
        (KNOWN, b"bad", 422),
        (KNOWN, b"full", 503),
        (KNOWN, b"x" * (LIMIT + 1), 422),
    ],
)
async def test_a_refusal_says_whether_to_come_again(
    base: str, http: aiohttp.ClientSession, box: Box, commitment: Digest, body: bytes, status: int
) -> None:
    got, answer = await ask(http, "POST", f"{base}/submissions/{commitment.hex()}", body)

    assert got == status
    assert box.taken == {}
    assert b"rpc.example" not in answer  # what this node asks the chain with is nobody's business


async def test_a_body_that_never_ends_is_cut_off_at_the_limit(base: str, http: aiohttp.ClientSession, box: Box) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield bytes(1 << 16)

    try:
        status, _ = await ask(http, "POST", f"{base}/submissions/{KNOWN.hex()}", endless())
        assert status == 422
    except aiohttp.ClientError:  # or the connection is closed on the sender
        pass
    assert (box.taken, sent < 1 << 26) == ({}, True)


async def test_a_body_of_an_unknown_commitment_is_not_read_at_all(base: str) -> None:
    host, port = base.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/submissions/{UNKNOWN.hex()} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"
    writer.write(head.encode())  # and not a byte of the body

    assert (await reader.readline()).startswith(b"HTTP/1.1 425")
    writer.close()


async def test_all_uploads_together_hold_so_much_and_no_more(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    box = Box(tmp_path)
    box.max_file_bytes = LEAST_UPLOAD_BYTES // 2  # so that the room holds four
    app = make_app(MAX_JSON_BYTES)
    add_routes(app, box)
    runner, port = await serve(app, "127.0.0.1", 0)
    url, release = f"http://127.0.0.1:{port}/v1/submissions/{KNOWN.hex()}", asyncio.Event()

    async def withheld() -> AsyncIterator[bytes]:
        for _ in range(box.max_file_bytes // (1 << 20) - 1):
            yield bytes(1 << 20)
        await release.wait()
        yield b""

    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(at(f"127.0.0.{n}")) for n in range(2, 7)]
        uploads = [asyncio.create_task(taken(each, url, withheld())) for each in senders]
        await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED)  # the last to come finds no room
        release.set()
        assert sorted(await asyncio.gather(*uploads)) == [False, True, True, True, True]
    assert (await ask(http, "POST", url, b"x"))[0] == 204  # what was held is free again
    await runner.cleanup()


async def taken(sender: aiohttp.ClientSession, url: str, body: object) -> bool:
    """Whether an upload finds room; refused with its body unread, its connection may also be reset."""
    try:
        return (await ask(sender, "POST", url, body))[0] != 503
    except aiohttp.ClientError:
        return False


def at(address: str) -> aiohttp.ClientSession:
    """A session that asks from this address of the machine's own."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0)))


async def held_back(base: str, path: str, size: int, announced: int) -> asyncio.StreamWriter:
    """A request whose body breaks off after `size` bytes."""
    host, port = base.removeprefix("http://").removesuffix("/v1").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {announced}\r\n\r\n".encode() + bytes(size))
    return writer


async def test_files_verdicts_and_proposals_are_taken_while_others_withhold_their_last_byte(
    base: str, http: aiohttp.ClientSession, box: Box
) -> None:
    places = ["batches", f"verdicts/{UNKNOWN.hex()}"] * 32 + [f"verdicts/{KNOWN.hex()}"] * 60
    writers = [await held_back(base, place, (1 << 20) - 1, 1 << 20) for place in places[:64]]
    writers += [await held_back(base, place, MAX_VERDICTS_BYTES - 1, MAX_VERDICTS_BYTES) for place in places[64:]]
    body = json.dumps({"run": 1, "commitments": ["0x" + KNOWN.hex()]})
    async with at("127.0.0.2") as elsewhere:  # its share is untouched
        assert await ask(elsewhere, "POST", f"{base}/verdicts/{KNOWN.hex()}", encode_verdicts([MESSAGE])) == (204, b"")
    assert await ask(http, "POST", f"{base}/submissions/{KNOWN.hex()}", b"x" * LIMIT) == (204, b"")
    assert (await ask(http, "POST", f"{base}/batches", body))[0] == 200
    for writer in writers:
        writer.close()


async def test_verdicts_on_an_unknown_commitment_are_not_read_at_all(base: str) -> None:
    host, port = base.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /v1/verdicts/{UNKNOWN.hex()} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n".encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 425")
    writer.close()


@pytest.mark.parametrize(
    "digest",
    [
        "", "0x", "ab", "0x" + "ab" * 31, "ab" * 33, "AB" * 32, "zz" * 32, "0x0x" + "ab" * 31, "ab%20" * 21 + "a",
        "%61" * 63 + "g", "..%2f" * 20, "ab" * 31 + "%0a", "ab" * 4000, "%ff" * 64,
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["submissions", "verdicts", "batches", "evidence"])
async def test_digests_of_any_other_shape_are_refused(
    base: str, http: aiohttp.ClientSession, place: str, digest: str
) -> None:
    from yarl import URL

    status, _ = await ask(http, "GET", URL(f"{base}/{place}/{digest}", encoded=True))  # type: ignore[arg-type]
    assert status in {404, 405, 414, 400, 422}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[" * 100_000, b'{"run":' * 50_000, b'{"run": 1, "commitments": 5}', b"[1]",
        b"\xff" * 100,
        b"[" + b"0," * 300_000 + b"0]", b'{"run": 1, "commitments": [' + b'"0x",' * 100_000 + b'""]}',
    ],
    ids=range(10),
)  # fmt: skip
async def test_json_of_any_other_shape_is_refused_and_the_server_goes_on(
    base: str, http: aiohttp.ClientSession, box: Box, body: bytes
) -> None:
    for url in (f"{base}/verdicts/{KNOWN.hex()}", f"{base}/batches"):
        status, answer = await ask(http, "POST", url, body)
        assert status == 422
        assert len(answer) < 1000
    assert (await ask(http, "GET", f"{base}/verdicts/{KNOWN.hex()}"))[0] == 200
    assert box.said == []


async def test_a_file_that_was_deleted_meanwhile_is_not_found(base: str, http: aiohttp.ClientSession) -> None:
    assert (await ask(http, "GET", f"{base}/evidence/{KNOWN.hex()}"))[0] == 404
    assert (await ask(http, "GET", f"{base}/submissions/{KNOWN.hex()}"))[0] == 404
    assert (await ask(http, "GET", f"{base}/nothing"))[0] == 404
