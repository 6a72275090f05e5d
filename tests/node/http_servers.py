"""Servers for tests of HTTP between nodes: a real one, and one that sends the bytes it is given."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from node.transport import Limits, make_app, serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, limits: Limits | None = None, max_body: int = 1000) -> AsyncIterator[str]:
    app = make_app(max_body, limits)
    app.router.add_route("GET", "/{path:.*}", handler)
    app.router.add_route("POST", "/{path:.*}", handler)
    runner, port = await serve(app, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer: bytes, then: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        try:
            await then(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def ok(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")
