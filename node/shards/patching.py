"""Versions by way of patches: made of the version before, found at other nodes, applied to an earlier version.

Nothing depends on it: what a patch does not give, or gives wrongly, the full version does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from ledger.base import Digest
from node.errors import Malformed, NotFound, StoreError
from node.log import event, warn
from node.progress import Progress
from node.shards.bitmaps import has
from node.shards.client import Downloader
from node.shards.layout import disk
from node.shards.patch_applying import Link, Piece, WrongPatch, pieces
from node.shards.patch_finding import FILE, Found, Named, PatchFinder
from node.shards.patch_index import Expected, PatchIndex, Span
from node.shards.patch_making import make_patch
from node.shards.patch_sides import Side
from node.shards.room import is_news

MAX_CHAIN = 8  # patches one after the other: who is further behind takes the full version
MAX_SHARE = 0.5  # of what would have to be fetched otherwise, that patches may have together
MAX_THREADS = 4  # that make a patch


@dataclass(frozen=True, slots=True)
class Patched:
    """What patches did for a version: how many were applied, and the bytes that were fetched for it."""

    patches: int = 0
    moved_bytes: int = 0


@dataclass(slots=True)
class Patching:
    """Of one node's `downloader` and its store. `named`: those whom the run names."""

    downloader: Downloader
    index: PatchIndex
    named: Callable[[], Named] = Named
    _finder: PatchFinder = field(init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._finder = PatchFinder(self.downloader, self.index, self.named)

    # --- Making

    async def make(self, base: Digest, target: Digest) -> int | None:
        """Makes the patch between two checkpoints of the store, and offers it; its bytes.

        None where it would not be worth its bytes, there is one, or a checkpoint is not whole here.

        Raises: StoreError.
        """
        span, stop = Span(base, target), threading.Event()
        with self.index.expecting([span]):
            try:
                return await asyncio.to_thread(self._make, span, stop)
            finally:
                stop.set()  # its thread goes on when the task is cancelled

    def _make(self, span: Span, stop: threading.Event) -> int | None:
        if span.base == span.target or self.index.find(span) is not None:
            return None
        threads = max(1, min(MAX_THREADS, (os.cpu_count() or 1) - 1))
        with disk("cannot make a patch"), self.index.staged() as folder, suppress(NotFound):
            base, target = self._side(span.base), self._side(span.target)
            size = make_patch(base, target, folder / FILE, int(MAX_SHARE * target.manifest.size), threads, stop)
            if size is not None:
                self.index.put(span, self.downloader.store.add(folder))
                return size
        return None

    def _side(self, root: Digest) -> Side:
        """Raises: NotFound: it is not whole here."""
        folder = self.downloader.store.complete(root)
        if folder is None:
            raise NotFound(f"checkpoint {root.hex()} is not whole here")
        return Side(folder, self.downloader.store.manifest(root))

    # --- Fetching

    async def bring(self, target: Digest, lineage: Sequence[Digest], progress: Progress | None = None) -> Patched:
        """Has the store begin `target` and hold all of it that patches give, where they are the cheaper way.

        `lineage`: the roots of the versions up to `target`, the last. What is missing afterwards is to be fetched like
        any other checkpoint. Why patches were of no use is logged, and whoever named a wrong one is banned. What is
        done is shown as parts of `progress`.

        Raises: as `Downloader.fetch`, where not even the manifest could be had.
        """
        async with self._one:
            way = await asyncio.to_thread(self._way, target, lineage)
            if way is None:
                return Patched()
            await self.downloader.begin(target)
            spans = [Span(*pair) for pair in pairwise(way)]
            shown = progress or Progress("downloading", "bytes", self.downloader.clock)
            with self.index.expecting() as expected:
                try:
                    return await self._bring(spans, expected, shown)
                except (NotFound, StoreError, Malformed, TimeoutError) as error:
                    if is_news(error):
                        reason = str(error) or "it took too long"
                        warn("patches not used, fetching the full version", root=target, reason=reason)
                    return Patched()

    def _way(self, target: Digest, lineage: Sequence[Digest]) -> list[Digest] | None:
        """The roots from the last version before `target` that is whole here; None where that is too far, or itself."""
        roots = [root for root, _ in groupby(lineage)][-MAX_CHAIN - 1 :]
        for place in reversed(range(len(roots))):
            if self.downloader.store.complete(roots[place]) is not None:
                return None if roots[place] == target else roots[place:]
        return None

    async def _bring(self, spans: Sequence[Span], expected: Expected, shown: Progress) -> Patched:
        """Raises: NotFound, StoreError, Malformed, TimeoutError."""
        target = spans[-1].target
        missing = self._missing_bytes(target)
        allowed = int(MAX_SHARE * missing)
        if not allowed:
            return Patched()
        until = self._finder.strangers_until(missing)
        with shown.part("waiting for a patch", ""):
            named = await asyncio.gather(*(self._finder.candidates(span, until, expected) for span in spans))
        if not all(named):
            event("no patch found, fetching the full version", root=target)
            return Patched()
        found: list[Found] = []
        with ExitStack() as kept:
            for span, candidates in zip(spans, named, strict=True):
                for candidate in candidates:
                    kept.enter_context(self.index.fetching(candidate.root))
                left = allowed - sum(each.moved_bytes for each in found)
                with shown.part("downloading a patch", "bytes") as hear:
                    found.append(await self._finder.fetch(span, candidates, left, until, hear))
            with shown.part("applying a patch", ""):
                await self._apply(found)
        return Patched(len(found), sum(each.moved_bytes for each in found))

    def _missing_bytes(self, root: Digest) -> int:
        manifest, have = self.downloader.store.manifest(root), self.downloader.store.have(root)
        lengths = (file.length(chunk) for file in manifest.files for chunk in range(len(file.chunks)))
        return sum(length for n, length in enumerate(lengths) if not has(have, n))

    async def _apply(self, chain: Sequence[Found]) -> None:
        """Writes what the patches make into the store, and vouches for them from now on.

        Raises: Malformed: one of them is wrong, and who named it is banned. NotFound, StoreError.
        """
        base = await asyncio.to_thread(self._side, chain[0].span.base)
        links = [Link(found.patch, await self.downloader.manifest(found.span.target)) for found in chain]
        made, target = pieces(base, links), chain[-1].span.target
        try:
            while await asyncio.to_thread(self._write_next, made, target):
                pass
        except WrongPatch as error:
            wrong = chain[error.place]
            await self._finder.require_as_it_came(wrong.candidate)
            self._finder.ban(wrong.candidate, error)
            await asyncio.to_thread(self.index.drop, wrong.span)
            raise
        for found in chain:
            await asyncio.to_thread(self.index.put, found.span, found.candidate.root)

    def _write_next(self, made: Iterator[Piece], target: Digest) -> bool:
        """Whether there was one."""
        with disk("cannot apply a patch"):
            piece = next(made, None)
            if piece is not None:
                self.downloader.store.write_chunk(target, piece.file, piece.chunk, piece.data)
            return piece is not None
