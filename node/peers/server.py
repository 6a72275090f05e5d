"""The answering side: HTTP routes over a `Mailbox`, which each role fills in as far as it takes part."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from aiohttp import web

from ledger.base import Digest, RunId
from ledger.messages import SignedMessage
from node.errors import Malformed, NotFound
from node.peers.wire import (
    MAX_JSON_BYTES,
    BatchAnswer,
    SignedBatch,
    encode_answer,
    encode_batch,
    encode_verdicts,
    from_hex,
    parse_proposal,
    parse_verdicts,
)
from node.transport import problem

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotYet(NotFound):
    """This node's chain has not seen the commitment: the sender repeats (425)."""


class Mailbox(Protocol):
    """What a role does with each request. `Malformed` answers 422, `NotFound` 404, `NotYet` 425."""

    @property
    def max_file_bytes(self) -> int: ...
    async def submission(self, commitment: Digest) -> bytes: ...
    async def take_submission(self, commitment: Digest, data: bytes) -> None: ...
    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]: ...
    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None: ...
    async def batch(self, commitment: Digest) -> SignedBatch: ...
    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer: ...
    async def evidence(self, digest: Digest) -> bytes: ...


def add_routes(app: web.Application, mailbox: Mailbox) -> None:
    """Serves `mailbox` under /v1. Every body is limited, every path parsed before it is used."""

    async def get_submission(request: web.Request) -> web.Response:
        return _octets(await mailbox.submission(_digest(request)))

    async def post_submission(request: web.Request) -> web.Response:
        await mailbox.take_submission(_digest(request), await _body(request, mailbox.max_file_bytes))
        return web.Response(status=204)

    async def get_verdicts(request: web.Request) -> web.Response:
        return _json(encode_verdicts(await mailbox.verdicts(_digest(request))))

    async def post_verdicts(request: web.Request) -> web.Response:
        await mailbox.take_verdicts(_digest(request), parse_verdicts(await _body(request, MAX_JSON_BYTES)))
        return web.Response(status=204)

    async def get_batch(request: web.Request) -> web.Response:
        return _json(encode_batch(await mailbox.batch(_digest(request))))

    async def post_batch(request: web.Request) -> web.Response:
        run, commitments = parse_proposal(await _body(request, MAX_JSON_BYTES))
        return _json(encode_answer(await mailbox.sign_batch(run, commitments)))

    async def get_evidence(request: web.Request) -> web.Response:
        return _octets(await mailbox.evidence(_digest(request)))

    app.router.add_get("/v1/submissions/{digest}", _guarded(get_submission))
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
        except NotFound as error:
            return problem(404, "not here", str(error))
        except Malformed as error:
            return problem(422, "refused", str(error)[:500])

    return answer


def _digest(request: web.Request) -> Digest:
    text = request.match_info["digest"].removeprefix("0x")
    if len(text) != 64:
        raise Malformed("a digest is 64 hex digits")
    return Digest(from_hex(text))


async def _body(request: web.Request, limit: int) -> bytes:
    if request.content_length is not None and request.content_length > limit:
        raise Malformed(f"body of {request.content_length} bytes: at most {limit} are read")
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_chunked(1 << 16):
        size += len(part)
        if size > limit:
            raise Malformed(f"body over {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _octets(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="application/octet-stream")


def _json(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="application/json")
