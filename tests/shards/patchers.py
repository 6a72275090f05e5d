"""Nodes that serve versions of weights, and patches between them, to each other through real sockets."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ledger.base import Digest
from node.shards.patch_finding import Named
from node.shards.patch_index import PatchIndex
from node.shards.patch_route import add_patch_route
from node.shards.patch_sides import Side
from node.shards.patching import Patched, Patching
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import make_app, serve
from node.transport.connections import Connections
from tests.shards.sources import GENEROUS, Handler, downloader

SMALL = 40_000  # words


@dataclass
class Node:
    """A node with a store, what it asks, and what it has sent so far, by path."""

    patching: Patching
    store: CheckpointStore
    url: str
    sent: dict[str, int]
    asked: list[str]

    async def bring(self, lineage: Sequence[Digest]) -> Patched:
        return await self.patching.bring(lineage[-1], lineage)

    async def fetch(self, lineage: Sequence[Digest]) -> Path:
        await self.bring(lineage)
        return await self.patching.downloader.fetch(lineage[-1])

    @property
    def sent_bytes(self) -> int:
        return sum(self.sent.values())


Start = Callable[..., Awaitable[Node]]  # (name, *sources)


async def started(
    folder: Path, servers: AsyncExitStack, http: Connections, *sources: str, named: Named | None = None
) -> Node:
    """A node that has its things in `folder`, serves what it has, and asks `sources`; the run names `named`."""
    client = downloader(folder, http, sources)
    patching = Patching(client, PatchIndex(folder / "patches"), lambda: named or Named())
    app = make_app(1000, GENEROUS)
    sent: dict[str, int] = {}
    asked: list[str] = []

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        return await handler(request)

    async def count(request: web.Request, response: web.StreamResponse) -> None:
        sent[request.path] = sent.get(request.path, 0) + (response.content_length or 0)

    app.middlewares.append(note)
    app.on_response_prepare.append(count)
    add_routes(app, client.store)
    add_patch_route(app, patching.index)
    runner, port = await serve(app, "127.0.0.1", 0)
    servers.push_async_callback(runner.cleanup)
    return Node(patching, client.store, f"http://127.0.0.1:{port}", sent, asked)


def roots(sides: Sequence[Side]) -> list[Digest]:
    return [each.manifest.root for each in sides]


async def published(origin: Node, sides: Sequence[Side], anchors: Sequence[int] = ()) -> list[Digest]:
    """Has the origin publish the versions, each with its patch but for `anchors`."""
    for number, each in enumerate(sides):
        origin.store.add(each.folder)
        if number and number not in anchors:
            assert await origin.patching.make(sides[number - 1].manifest.root, each.manifest.root)
    return roots(sides)
