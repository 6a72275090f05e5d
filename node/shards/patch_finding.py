"""Patches from strangers: who has one, which of those that are named is fetched, and who is to blame for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.client import Downloader
from node.shards.patch_file import Patch
from node.shards.patch_index import PatchIndex, Span

FILE = "patch"  # the one file of a checkpoint that is a patch
ASKED = 8  # sources asked for a patch beside each other
WAIT_SECONDS = 10  # for a source that is making or fetching it just now
GRACE_SECONDS = 0.3  # after a first answer, for others that name another patch
TRIED = 2  # of the patches that are named
LEAST_SECONDS, LEAST_BYTES_PER_SECOND = 30.0, 500e3  # one that comes more slowly is given up
PATIENCE_SECONDS = 20.0  # for a chunk of a patch


@dataclass(frozen=True, slots=True)
class Candidate:
    """The root of a patch, and who named it; nobody where this node vouches for it itself."""

    root: Digest
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A patch that lies whole in the store, not yet believed."""

    span: Span
    candidate: Candidate
    patch: Patch
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class PatchFinder:
    """Looks at the sources of `downloader`, and fetches into its store."""

    downloader: Downloader
    index: PatchIndex

    async def candidates(self, span: Span) -> list[Candidate]:
        """Whatever is named for the span: first what most name, then what the first sources do. This node's own comes
        alone."""
        own = self.index.find(span)
        if own is not None and await asyncio.to_thread(self.downloader.store.complete, own) is not None:
            return [Candidate(own, ())]
        by_root: dict[Digest, list[str]] = {}
        for source, root in await self._answers(span):
            by_root.setdefault(root, []).append(source)
        named = [Candidate(root, tuple(sources)) for root, sources in by_root.items()]
        return sorted(named, key=lambda candidate: -len(candidate.sources))

    async def fetch(self, span: Span, candidates: Sequence[Candidate], most_bytes: int) -> Found:
        """The first of the candidates that can be had.

        Raises: NotFound, Malformed, TimeoutError: none can, or is worth it. StoreError.
        """
        chunks = (await self.downloader.manifest(span.target)).chunks
        problem: Exception = NotFound("no source names a patch")
        for candidate in candidates[:TRIED]:
            try:
                return await self._fetch(span, candidate, most_bytes, chunks)
            except Malformed as error:
                self.ban(candidate, error)
                problem = error
            except (NotFound, TimeoutError) as error:
                for source in candidate.sources:
                    self.downloader.selection.failed(source, f"named a patch that could not be had: {error}")
                problem = error
        raise problem

    def ban(self, candidate: Candidate, why: object) -> None:
        """Whoever named it vouched for it: each is asked for nothing any more."""
        for source in candidate.sources:
            self.downloader.selection.ban(source, f"named a wrong patch: {why}")

    async def _answers(self, span: Span) -> list[tuple[str, Digest]]:
        """In the order of the sources; once one has named a patch, the others have a moment more."""
        downloader, asker = self.downloader, self.downloader.asker
        sources = downloader.selection.few(downloader.sources(), ASKED)
        asked = [asyncio.create_task(asker.patch(source, span.target, span.base, WAIT_SECONDS)) for source in sources]
        waiting, named = set(asked), False
        try:
            while waiting:
                limit = GRACE_SECONDS if named else 2.0 * WAIT_SECONDS
                done, waiting = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                named = named or any(task.result() for task in done)
                if not done:
                    break
            ended = [(source, task.result()) for source, task in zip(sources, asked, strict=True) if task.done()]
            return [(source, root) for source, root in ended if root is not None]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _fetch(self, span: Span, candidate: Candidate, most_bytes: int, chunks: int) -> Found:
        """Raises: as `fetch`."""
        store, here = self.downloader.store, candidate.sources == ()
        folder = await asyncio.to_thread(store.complete, candidate.root) if here else None
        if folder is None:
            folder = await self._content(candidate.root, most_bytes)
        patch = await asyncio.to_thread(Patch.read, folder / FILE, chunks)
        return Found(span, candidate, patch, 0 if here else store.manifest(candidate.root).size)

    async def _content(self, root: Digest, most_bytes: int) -> Path:
        downloader = self._hasty()
        async with asyncio.timeout(LEAST_SECONDS):
            manifest = await downloader.manifest(root)
        if [file.name for file in manifest.files] != [FILE] or manifest.tensors:
            raise Malformed(f"{root.hex()} is no patch")
        if manifest.size > most_bytes:
            raise NotFound(f"one of {manifest.size} bytes, where {most_bytes} are worth it")
        await asyncio.to_thread(downloader.store.remember, manifest)
        async with asyncio.timeout(LEAST_SECONDS + manifest.size / LEAST_BYTES_PER_SECOND):
            return await downloader.fetch(root)

    def _hasty(self) -> Downloader:
        """As the node's own, but less patient; what it learns of sources is shared."""
        pace = replace(
            self.downloader.pace, patience_seconds=min(PATIENCE_SECONDS, self.downloader.pace.patience_seconds)
        )
        return replace(self.downloader, pace=pace, base=None)
