"""A node of the measurements: the project's store, server and downloader in a process, told what to do in JSON.

    python peer.py FOLDER PORT [--lies SHARE] [--note]

Answers every line of input with one of output: `{"add": PATH}`, `{"fetch": ROOT, "sources": [URL, ...]}`
(with "me" where others know it by another URL than where it listens), `{"idle": 1}`
(memory and processor time count from here), `{"figures": 1}`. That share of the chunks it serves is wrong. With --note
every right chunk that came is a line of FOLDER/came, its digest, and every wrong one a line of FOLDER/wrong, the digest
that it should have had.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware
from blake3 import blake3

from ledger.base import Digest
from node.bans import BANNED, Bans
from node.shards.client import Downloader
from node.shards.intact import read_place
from node.shards.selection import Selection
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import make_app, serve
from node.transport.connections import Connections

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Noting(CheckpointStore):
    """Notes what came before it is stored, so that a chunk whose process was killed over it is known to have come."""

    notes: Path

    def write_chunk(self, root: Digest, file: int, chunk: int, data: bytes | memoryview) -> None:
        digest = self.manifest(root).files[file].chunks[chunk]
        with (self.notes / ("came" if blake3(data).digest() == digest else "wrong")).open("a") as notes:
            notes.write(digest.hex() + "\n")
        super().write_chunk(root, file, chunk, data)


@dataclass(slots=True)
class Peer:
    """One node; its memory and processor time count from `idle`."""

    store: CheckpointStore
    downloader: Downloader
    sources: list[str] = field(default_factory=list)
    me: str = ""
    first_chunk: float = 0.0  # time.time() of the first chunk that was stored
    idle_rss_kib: int = 0
    idle_cpu_seconds: float = 0.0

    async def answer(self, told: dict[str, Any]) -> dict[str, Any]:
        if "add" in told:
            started = time.perf_counter()
            root = await asyncio.to_thread(self.store.add, Path(told["add"]))
            return {"root": root.hex(), "seconds": time.perf_counter() - started, "published": time.time()}
        if "fetch" in told:
            self.sources[:] = told["sources"]
            self.me = told.get("me", self.me)
            return await self._fetch(Digest(bytes.fromhex(told["fetch"])))
        if "idle" in told:
            self._begin_measuring()
            return {}
        return self._figures()

    async def _fetch(self, root: Digest) -> dict[str, Any]:
        self.first_chunk = 0.0

        def heard(digests: Sequence[bytes]) -> None:
            if digests and digests != [root] and not self.first_chunk:
                self.first_chunk = time.time()

        self.store.subscribe(heard)
        started = time.perf_counter()
        try:
            await self.downloader.fetch(root)
        finally:
            self.store.unsubscribe(heard)
        return {
            "seconds": time.perf_counter() - started,
            "first_chunk": self.first_chunk,
            "done": time.time(),
            "banned": self.downloader.selection.banned,
        }

    def _begin_measuring(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM is from now on; proc_pid_clear_refs(5)
        self.idle_rss_kib, self.idle_cpu_seconds = _status("VmRSS"), time.process_time()

    def _figures(self) -> dict[str, Any]:
        return {
            "rss_increase_mib": (_status("VmHWM") - self.idle_rss_kib) / 1024,
            "rss_idle_mib": self.idle_rss_kib / 1024,
            "cpu_seconds": time.process_time() - self.idle_cpu_seconds,
        }


async def main(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    async with AsyncExitStack() as stack:
        store = CheckpointStore(folder / "store")
        if arguments.note:
            store = noting = Noting(folder / "store")
            noting.notes = folder
        app = make_app(1000)
        if arguments.lies:
            app.middlewares.append(_lying(store, arguments.lies))
        add_routes(app, store)
        runner, port = await serve(app, "127.0.0.1", arguments.port)
        stack.push_async_callback(runner.cleanup)
        connections = await stack.enter_async_context(Connections(allow_private=True))
        sources: list[str] = []
        url = f"http://127.0.0.1:{port}"
        selection = Selection(random.Random(), time.monotonic, Bans(store.folder / BANNED))
        downloader = Downloader(store, connections, lambda: sources, selection, me=lambda: peer.me)
        peer = Peer(store, downloader, sources, url)
        _say({"url": url})
        while line := await asyncio.to_thread(sys.stdin.readline):
            _say(await peer.answer(json.loads(line)))


def _lying(store: CheckpointStore, share: float) -> Middleware:
    rng = random.Random(os.getpid())

    @web.middleware
    async def lie(request: web.Request, handler: Handler) -> web.StreamResponse:
        place = await asyncio.to_thread(store.vouch, bytes.fromhex(request.match_info.get("digest", "")))
        if place is None or rng.random() >= share:
            return await handler(request)
        wrong = bytearray(await asyncio.to_thread(read_place, place))
        wrong[rng.randrange(len(wrong))] ^= 1
        return web.Response(body=bytes(wrong))

    return lie


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, "Linux names it"
    return int(found[1])


def _say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--lies", type=float, default=0.0)
    parser.add_argument("--note", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(arguments))
