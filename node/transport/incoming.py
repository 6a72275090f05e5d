"""Answering other nodes: one application whose every request is counted, timed, and whose failures are problems."""

import asyncio
import json
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.transport.addresses import subscriber
from node.transport.limits import Gate, Limits, TooMany

MAX_DETAIL_CHARACTERS = 500
BACKLOG = 128
SHUTDOWN_SECONDS = 2.0
ACCEPT_PAUSE_SECONDS = 0.05  # when the process is out of file descriptors
SAID_AGAIN_SECONDS = 60.0  # a request that no handler sees is not counted by the gate, so its log line is

LOGGER = logging.getLogger(__name__)

LIMITS = web.AppKey("limits", Limits)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def problem(status: int, title: str, detail: str) -> web.Response:
    """An error as `application/problem+json` (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail[:MAX_DETAIL_CHARACTERS]}
    return web.Response(status=status, text=json.dumps(body), content_type="application/problem+json")


def make_app(max_body: int, limits: Limits | None = None) -> web.Application:
    """An application without routes whose requests are limited.

    Bodies over `max_body` bytes are refused (413). Handlers may raise `Malformed` (400), `NotFound` (404) and
    `StoreError` (503); those and aiohttp's own errors are answered as problems. A request that takes longer than
    `limits.request_seconds`, its answer included, is cut off.
    """
    limits = limits or Limits()
    app = web.Application(client_max_size=max_body, middlewares=[_guard(Gate(limits), limits), _errors_as_problems])
    app[LIMITS] = limits
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
        auto_decompress=False,  # 400 kB of gzip can be 400 MB: peers send bodies as they are
        keepalive_timeout=limits.idle_seconds,
        logger=LOGGER,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    with ExitStack() as opened:
        opened.callback(listener.close)
        await runner.setup()
        await _LimitedSite(runner, listener, limits).start()
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


class _LimitedSite(web.BaseSite):
    """Accepts connections itself, because only here is a peer's address known before anything is held for it."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket, limits: Limits) -> None:
        super().__init__(runner)
        self._listener = listener
        self._limits = limits
        self._accepting: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        self._accepting = asyncio.create_task(self._accept())

    async def stop(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self._listener.close()
        await super().stop()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        server = self._runner.server
        assert server is not None, "the runner was set up before this site was made"
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            if not peer or self._full(server, subscriber(str(peer[0]))):
                connection.close()
                continue
            try:
                await loop.connect_accepted_socket(server, connection)
            except OSError:  # the peer has gone already: some systems refuse to set options of its socket
                connection.close()

    def _full(self, server: web.Server, address: str) -> bool:
        if len(server.connections) >= self._limits.connections:
            return True
        same = sum(_address(each.transport) == address for each in server.connections)
        return same >= self._limits.connections_per_address


def _address(transport: asyncio.BaseTransport | None) -> str:
    peer = transport.get_extra_info("peername") if transport is not None else None
    return subscriber(str(peer[0])) if peer else ""


def _guard(gate: Gate, limits: Limits) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            with gate.request(_address(request.transport)):
                return await _answered(request, handler, limits.request_seconds)
        except TooMany as refused:
            answer = problem(refused.status, HTTPStatus(refused.status).phrase, str(refused))
            answer.headers["Retry-After"] = str(math.ceil(refused.retry_seconds))
            return answer

    return guard


async def _answered(request: web.Request, handler: Handler, seconds: float) -> web.StreamResponse:
    """Sends the answer here, inside the deadline and the count: aiohttp alone would wait for a reader for ever."""
    try:
        async with asyncio.timeout(seconds):
            response = await handler(request)
            await response.prepare(request)
            await response.write_eof()
            return response
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        return web.Response()  # for aiohttp, which finds the connection gone


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
