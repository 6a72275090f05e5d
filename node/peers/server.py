"""The answering side: HTTP routes over a `Mailbox`, which each role fills in as far as it takes part."""

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from aiohttp import web

from ledger.base import Digest, RunId
from ledger.errors import LedgerError
from ledger.messages import SignedMessage
from node.errors import Malformed, NotFound
from node.peers.bodies import Busy, Late, Room, read_body
from node.peers.wire import (
    BatchAnswer,
    SignedBatch,
    encode_answer,
    encode_batch,
    encode_verdicts,
    from_hex,
    parse_proposal,
    parse_verdicts,
)
from node.transport import problem, send_file

FILES_AT_ONCE = 4  # as many bytes as this many whole files are held of all uploads together
LEAST_UPLOAD_BYTES = 64 << 20  # of all uploads together, where a run's files are small
MAX_PROPOSAL_BYTES = 8 << 10  # MAX_BATCH commitments are 64 x 70 bytes; so little needs no room of its own
MAX_VERDICTS_BYTES = 192 << 10  # 64 KiB for each kind of message
VERDICT_ROOM_BYTES = 32 << 20

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotYet(NotFound):
    """This node's chain has not seen the commitment: the sender repeats (425)."""


class Mailbox(Protocol):
    """What a role does with each request. `Malformed` answers 422, `NotFound` 404, `NotYet` 425, `Busy` 503."""

    @property
    def max_file_bytes(self) -> int: ...
    async def submission(self, commitment: Digest) -> Path:
        """The rollout file."""

    async def manifest(self, commitment: Digest) -> bytes:
        """The manifest by whose chunks the file can be had: a hint, since the commitment does not bind it."""

    async def wants_submission(self, commitment: Digest) -> bool:
        """Whether the file is to be sent at all: asked before a byte of it is read."""

    async def take_submission(self, commitment: Digest, data: bytes) -> None: ...
    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]: ...
    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None: ...
    async def batch(self, commitment: Digest) -> SignedBatch: ...
    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer: ...
    async def evidence(self, digest: Digest) -> Path: ...


def add_routes(app: web.Application, mailbox: Mailbox) -> None:
    """Serves `mailbox` under /v1. Every body is limited, every path parsed before it is used."""
    files = Room(max(LEAST_UPLOAD_BYTES, FILES_AT_ONCE * mailbox.max_file_bytes))
    verdicts = Room(VERDICT_ROOM_BYTES)

    async def get_submission(request: web.Request) -> web.StreamResponse:
        return await _send(request, await mailbox.submission(_digest(request)))

    async def get_manifest(request: web.Request) -> web.StreamResponse:
        return _json(await mailbox.manifest(_digest(request)))

    async def post_submission(request: web.Request) -> web.StreamResponse:
        commitment = _digest(request)
        if await mailbox.wants_submission(commitment):
            with files.claimed(request.remote) as claim:
                data = await read_body(request, mailbox.max_file_bytes, claim)
                await mailbox.take_submission(commitment, data)
        return web.Response(status=204)

    async def get_verdicts(request: web.Request) -> web.StreamResponse:
        return _json(encode_verdicts(await mailbox.verdicts(_digest(request))))

    async def post_verdicts(request: web.Request) -> web.StreamResponse:
        commitment = _digest(request)
        await mailbox.wants_submission(commitment)  # raises where it is unknown, before a byte is read
        with verdicts.claimed(request.remote) as claim:
            messages = parse_verdicts(await read_body(request, MAX_VERDICTS_BYTES, claim))
            await mailbox.take_verdicts(commitment, messages)
        return web.Response(status=204)

    async def get_batch(request: web.Request) -> web.StreamResponse:
        return _json(encode_batch(await mailbox.batch(_digest(request))))

    async def post_batch(request: web.Request) -> web.StreamResponse:
        run, commitments = parse_proposal(await read_body(request, MAX_PROPOSAL_BYTES))
        return _json(encode_answer(await mailbox.sign_batch(run, commitments)))

    async def get_evidence(request: web.Request) -> web.StreamResponse:
        return await _send(request, await mailbox.evidence(_digest(request)))

    app.router.add_get("/v1/submissions/{digest}", _guarded(get_submission))
    app.router.add_get("/v1/submissions/{digest}/manifest", _guarded(get_manifest))
    app.router.add_post("/v1/submissions/{digest}", _guarded(post_submission))
    app.router.add_get("/v1/verdicts/{digest}", _guarded(get_verdicts))
    app.router.add_post("/v1/verdicts/{digest}", _guarded(post_verdicts))
    app.router.add_get("/v1/batches/{digest}", _guarded(get_batch))
    app.router.add_post("/v1/batches", _guarded(post_batch))
    app.router.add_get("/v1/evidence/{digest}", _guarded(get_evidence))


def _guarded(handler: Handler) -> Handler:
    """`handler`, its refusals answered as problems: a peer's mistake is never this node's error."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotYet as error:
            return problem(425, "too early", str(error))
        except Busy as error:
            return problem(503, "busy", str(error))
        except Late as error:
            return problem(408, "too slow", str(error))
        except NotFound as error:
            return problem(404, "not here", str(error))
        except Malformed as error:
            return problem(422, "refused", str(error)[:500])
        except LedgerError:
            return problem(503, "no chain", "this node cannot ask the chain at present")

    return answer


def _digest(request: web.Request) -> Digest:
    text = request.match_info["digest"]
    if re.fullmatch("(0x)?[0-9a-f]{64}", text) is None:
        raise Malformed("a digest is 64 lower-case hex digits")
    return Digest(from_hex(text))


async def _send(request: web.Request, path: Path) -> web.StreamResponse:
    """Raises: NotFound, before any byte."""
    try:
        return await send_file(request, path)
    except FileNotFoundError as error:
        raise NotFound("this node has deleted that file") from error


def _json(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="application/json")
