"""Answering other nodes: one application whose every request is counted, timed, and whose failures are problems."""

import asyncio
import json
import logging
import math
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.transport.addresses import address_of
from node.transport.limits import Gate, Limits, TooMany
from node.transport.listening import LimitedSite
from node.transport.sending import DEADLINES, GATE, UPLINK, break_off
from node.transport.uplink import Uplink

MAX_DETAIL_CHARACTERS = 500
BACKLOG = 128
SHUTDOWN_SECONDS = 2.0
LINGERING_SECONDS = 2.0  # of reading on in a body that was refused, so that the refusal arrives
SAID_AGAIN_SECONDS = 60.0  # a request that no handler sees is not counted by the gate, so its log line is

LOGGER = logging.getLogger(__name__)

LIMITS = web.AppKey("limits", Limits)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def problem(status: int, title: str, detail: str) -> web.Response:
    """An error as `application/problem+json` (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail[:MAX_DETAIL_CHARACTERS]}
    return web.Response(status=status, text=json.dumps(body), content_type="application/problem+json")


def make_app(max_body: int, limits: Limits | None = None, uplink: Uplink | None = None) -> web.Application:
    """An application without routes whose requests are limited, and what it sends of files by `uplink`.

    Bodies over `max_body` bytes are refused (413). Handlers may raise `Malformed` (400), `NotFound` (404) and
    `StoreError` (503); those and aiohttp's own errors are answered as problems. A request that takes longer than
    `limits.request_seconds`, its answer included, is cut off; a file has its own time (`send_file`).
    """
    limits = limits or Limits()
    gate = Gate(limits)
    app = web.Application(client_max_size=max_body, middlewares=[_guard(gate, limits), _errors_as_problems])
    app[LIMITS], app[GATE], app[UPLINK], app[DEADLINES] = limits, gate, uplink or Uplink(), {}
    return app


async def serve(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listens; port 0 takes a free one. Returns what `cleanup()` stops, and the actual port.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    limits = app[LIMITS]
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
        )
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from error
    listener.setblocking(False)
    runner = web.AppRunner(
        app,
        access_log=None,
        lingering_time=LINGERING_SECONDS,
        auto_decompress=False,  # 400 kB of gzip can be 400 MB: peers send bodies as they are
        keepalive_timeout=limits.idle_seconds,
        logger=LOGGER,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    with ExitStack() as opened:
        opened.callback(listener.close)
        await runner.setup()
        await LimitedSite(runner, listener, limits).start()
        opened.pop_all()
    return runner, int(listener.getsockname()[1])


class _Sparingly(logging.Filter):
    """What aiohttp says of requests: nothing where they are not HTTP, and of the rest one a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._silent_until = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        now = time.monotonic()
        if isinstance(error, HttpProcessingError) or now < self._silent_until:
            return False
        self._silent_until = now + SAID_AGAIN_SECONDS
        return True


LOGGER.addFilter(_Sparingly())


def _guard(gate: Gate, limits: Limits) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Range" in request.headers:
            return problem(416, "Range Not Satisfiable", "chunks and files are sent whole: ask without Range")
        deadline = asyncio.timeout(limits.request_seconds)
        try:
            with gate.request(address_of(request.transport), lambda: break_off(deadline)):
                return await _answered(request, handler, deadline)
        except TooMany as refused:
            answer = problem(refused.status, HTTPStatus(refused.status).phrase, str(refused))
            answer.headers["Retry-After"] = str(math.ceil(refused.retry_seconds))
            return answer

    return guard


async def _answered(request: web.Request, handler: Handler, deadline: asyncio.Timeout) -> web.StreamResponse:
    """Sends the answer here, inside the deadline and the count: aiohttp alone would wait for a reader for ever."""
    transport = request.transport
    if transport is None:
        return web.Response()  # the peer has gone
    deadlines = request.app[DEADLINES]
    try:
        async with deadline:
            deadlines[transport] = deadline
            response = await handler(request)
            await response.prepare(request)
            await response.write_eof()
            return response
    except (TimeoutError, ConnectionError):
        _reset(transport)
        return web.Response()  # for aiohttp, which finds the connection gone
    finally:
        deadlines.pop(transport, None)


def _reset(transport: asyncio.Transport) -> None:
    """Closes at once: the system forgets what its reader has not taken, instead of keeping it until it has."""
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@web.middleware
async def _errors_as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        answer = problem(error.status, error.reason, error.text or error.reason)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except (Malformed, web.RequestPayloadError) as error:
        return problem(400, "Bad Request", str(error))
    except NotFound as error:
        return problem(404, "Not Found", str(error))
    except StoreError as error:
        return problem(503, "Service Unavailable", str(error))
