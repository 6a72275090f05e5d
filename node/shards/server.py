"""Serving what a store has verified: manifests, bitmaps, and chunks as soon as they arrive (long poll)."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from aiohttp import web

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.holding import Place
from node.shards.shelves import Shelf
from node.transport import problem, send_file
from node.transport.sending import OCTETS

MAX_WAIT_SECONDS = 30  # of one long poll

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_routes(app: web.Application, store: Shelf, declines: Callable[[Digest], bool] | None = None) -> None:
    """Adds `/v1/manifests/{root}?wait=seconds`, `/v1/have/{root}` and `/v1/chunks/{digest}?wait=seconds` to `app`.

    Roots and digests are 64 lower-case hex digits; anything else, and any other query, is refused. Where no weights are
    served, `declines` says which roots are weights: who asks for one is told so (403), not to ask again. Anything else
    that is not here may come later (404); nobody waits for it here.
    """
    arrivals = _Arrivals(patient=declines is None)

    async def listening(_: web.Application) -> None:
        arrivals.loop = asyncio.get_running_loop()
        store.subscribe(arrivals.announce)

    async def silent(_: web.Application) -> None:
        store.unsubscribe(arrivals.announce)

    async def manifest(request: web.Request) -> web.StreamResponse:
        root = Digest(_digest(request, "root"))
        wait = _wait_seconds(request, permitted=True)
        path = await arrivals.manifest(store, root, wait)
        try:
            return await send_file(request, path, kind="application/json")
        except FileNotFoundError as error:
            raise NotFound(f"checkpoint {root.hex()} was evicted") from error

    async def have(request: web.Request) -> web.StreamResponse:
        root = Digest(_digest(request, "root"))
        _wait_seconds(request, permitted=False)
        return web.Response(body=store.have(root), content_type=OCTETS)

    async def chunk(request: web.Request) -> web.StreamResponse:
        digest = _digest(request, "digest")
        wait = _wait_seconds(request, permitted=True)
        place: Place | None = await arrivals.wait_for(store, digest, wait)
        while place is not None:
            try:
                return await send_file(request, *place)
            except FileNotFoundError:  # published since, and lies elsewhere now, or evicted
                before, place = place, await asyncio.to_thread(store.relocate, digest)
                if place == before:
                    break
        raise NotFound(f"chunk {digest.hex()} is not here any more")

    app.on_startup.append(listening)
    app.on_cleanup.append(silent)
    app.router.add_get("/v1/manifests/{root}", _declining(manifest, declines), allow_head=False)
    app.router.add_get("/v1/have/{root}", _declining(have, declines), allow_head=False)
    app.router.add_get("/v1/chunks/{digest}", chunk, allow_head=False)


def _declining(handler: Handler, declines: Callable[[Digest], bool] | None) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotFound:
            if declines is not None and declines(Digest(_digest(request, "root"))):
                return problem(403, "Forbidden", "this node serves no weights: ask others")
            raise

    return answer


class _Arrivals:
    """Who waits for which chunk or manifest. As many wait as requests are permitted at once."""

    def __init__(self, patient: bool) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._patient = patient  # nobody waits otherwise
        self._waiting: dict[bytes, list[asyncio.Future[None]]] = {}

    def announce(self, digests: Sequence[bytes]) -> None:
        """Of a store's listener: called in the thread that wrote the chunks."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._wake, digests)

    async def wait_for(self, store: Shelf, digest: bytes, seconds: float) -> Place:
        """Where the chunk lies, once it does. Raises: NotFound, after `seconds`."""
        with self._waiting_for(digest) as arrived:
            # After joining those who wait: it may be arriving now.
            place = await asyncio.to_thread(store.vouch, digest)
            if place is None and seconds and self._patient:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(arrived, seconds)
                place = await asyncio.to_thread(store.vouch, digest)
            if place is None:
                raise NotFound(f"chunk {digest.hex()} is not here")
            return place

    async def manifest(self, store: Shelf, root: Digest, seconds: float) -> Path:
        """The file of the manifest, once it is here. Raises: NotFound, after `seconds`."""
        with self._waiting_for(root) as arrived:
            with contextlib.suppress(NotFound):
                return await asyncio.to_thread(store.manifest_path, root)
            if seconds and self._patient:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(arrived, seconds)
            return await asyncio.to_thread(store.manifest_path, root)

    @contextlib.contextmanager
    def _waiting_for(self, digest: bytes) -> Iterator[asyncio.Future[None]]:
        arrived = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(digest, []).append(arrived)
        try:
            yield arrived
        finally:
            self._waiting[digest].remove(arrived)
            if not self._waiting[digest]:
                del self._waiting[digest]

    def _wake(self, digests: Sequence[bytes]) -> None:
        for digest in digests:
            for arrived in self._waiting.get(digest, ()):
                if not arrived.done():
                    arrived.set_result(None)


def _digest(request: web.Request, name: str) -> bytes:
    text = request.match_info[name]
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise Malformed(f"{name}: not 64 lower-case hex digits")
    return bytes.fromhex(text)


def _wait_seconds(request: web.Request, permitted: bool) -> int:
    """The query's `wait`, 0 without one. Raises: Malformed."""
    query = request.query
    if not query:
        return 0
    text = query.get("wait", "")
    if not permitted or len(query) != 1 or not re.fullmatch("[0-9]{1,2}", text) or int(text) > MAX_WAIT_SECONDS:
        raise Malformed(f"query: only wait=0 to {MAX_WAIT_SECONDS} seconds, and only for chunks and manifests")
    return int(text)
