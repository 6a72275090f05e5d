"""Sources for downloads through real sockets: honest, scripted, and such as break off or lie at a chosen byte."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from aiohttp import web

from ledger.base import Digest
from node.bans import BANNED, Bans
from node.errors import NotFound
from node.shards.client import Downloader
from node.shards.selection import Selection
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.shards.wanted import Pace
from node.transport import Limits, Timeouts, make_app, serve
from node.transport.connections import Connections

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Kind = Literal["manifests", "have", "chunks"]
Alter = Callable[[bytes], bytes]

QUICK = Pace(patience_seconds=20.0, poll_seconds=0.02, watch_seconds=0.1, late_seconds=0.5, brief_wait_seconds=1)
BRIEF = replace(QUICK, patience_seconds=0.5, brief_wait_seconds=0, wait_seconds=0)
TIMEOUTS = Timeouts(connect_seconds=1.0, idle_seconds=0.5, total_seconds=5.0)
SOON_SECONDS = 18.0  # on a busy machine; below the 20 that `QUICK` has patience, and that a stalled answer may take
GENEROUS = Limits(requests_per_second=1e6, burst=10**6, request_seconds=10)


async def serving(servers: AsyncExitStack, store: CheckpointStore) -> str:
    """An honest source."""
    app = make_app(1000, GENEROUS)
    add_routes(app, store)
    runner, port = await serve(app, "127.0.0.1", 0)
    servers.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{port}"


async def answering(servers: AsyncExitStack, handler: Handler) -> str:
    """A source of which every request is answered by `handler`."""
    app = make_app(1000, GENEROUS)
    app.router.add_get("/{path:.*}", handler)
    runner, port = await serve(app, "127.0.0.1", 0)
    servers.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{port}"


async def speaking(servers: AsyncExitStack, reply: Callable[[Kind, str], bytes], *, stall: bool = False) -> str:
    """A source that sends the bytes `reply(kind, name)`, status line and all, then closes, or says nothing more."""
    open_writers: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            kind, name = request.split(" ")[1].split("?")[0].split("/")[2:]
            writer.write(reply(kind, name))  # type: ignore[arg-type]
            await writer.drain()
            if stall:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            open_writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)

    def stop() -> None:
        server.close()
        for writer in open_writers:
            writer.transport.abort()

    servers.callback(stop)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def truth(store: CheckpointStore, kind: Kind, name: str) -> bytes:
    """What an honest source answers, without its head."""
    if kind == "manifests":
        return store.manifest_path(bytes.fromhex(name)).read_bytes()  # type: ignore[arg-type]
    if kind == "have":
        return store.have(bytes.fromhex(name))  # type: ignore[arg-type]
    path, offset, length = store.vouch(bytes.fromhex(name)) or (Path(), 0, 0)
    return path.read_bytes()[offset : offset + length]


def message(body: bytes, length: int | None = None, status: str = "200 OK", more: str = "") -> bytes:
    """A response whose announced length may be a lie."""
    count = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {count}\r\n{more}\r\n".encode() + body


async def altered(servers: AsyncExitStack, origin: CheckpointStore, alter: Alter) -> str:
    """Honest but for its chunks; `alter` makes what is sent of one, head and all."""
    return await speaking(
        servers,
        lambda kind, name: (alter if kind == "chunks" else message)(truth(origin, kind, name)),
    )


def downloader(folder: Path, http: Connections, sources: Sequence[str], pace: Pace = QUICK) -> Downloader:
    store = CheckpointStore(folder)
    selection = Selection(random.Random(1), time.monotonic, Bans(folder / BANNED))
    return Downloader(store, http, lambda: sources, selection, pace=pace, timeouts=TIMEOUTS)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def fetched(node: Downloader, root: Digest) -> dict[str, bytes] | None:
    """What came; None where nothing did."""
    try:
        return contents(await node.fetch(root))
    except NotFound:
        return None
