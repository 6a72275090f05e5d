"""Patches from strangers: who has one, which of those that are named is fetched, and who is to blame for it.

Anybody can name a patch that never comes whole. What those say whom the run names goes before what others do; for all
that others name there is one limit of time, a small share of what the full version takes on a fast line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.client import Downloader
from node.shards.patch_file import Patch
from node.shards.patch_index import PatchIndex, Span

FILE = "patch"  # the one file of a checkpoint that is a patch
ASKED = 8  # sources asked for a patch beside each other
TRUSTED_ASKED = ASKED // 2  # of them that the run names
WAIT_SECONDS = 10  # for a source that is making or fetching it just now
GRACE_SECONDS = 1.0  # for the others, after a stranger has named one, or those whom the run names have answered
TRIED = 2  # of the patches that are named
LEAST_SECONDS, LEAST_BYTES_PER_SECOND = 30.0, 500e3  # one that comes more slowly is given up, whoever named it
SHARE_OF_FULL = 0.25  # of the time that the full version takes, that what strangers name may cost
FAST_BYTES_PER_SECOND = 125e6  # the line that is taken for that, where none is known to be faster: 1 Gb/s
LEAST_STRANGERS_SECONDS = 5.0  # however small the version: a few round trips, and a chunk or two
BROKE_OFF_SECONDS = 3600.0  # who named one that did not come whole is not asked for any
PATIENCE_SECONDS = 20.0  # for a chunk of a patch


def nobody() -> Collection[str]:
    """Where the run names none."""
    return ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """The root of a patch, and who named it; nobody where this node vouches for it itself. `trusted`: it does, or
    somebody whom the run names."""

    root: Digest
    sources: tuple[str, ...]
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A patch that lies whole in the store, not yet believed."""

    span: Span
    candidate: Candidate
    patch: Patch
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class PatchFinder:
    """Looks at the sources of `downloader`, and fetches into its store. `trusted`: the URLs of those whom the run
    names."""

    downloader: Downloader
    index: PatchIndex
    trusted: Callable[[], Collection[str]] = nobody
    _broke_off: dict[str, float] = field(default_factory=dict)  # when, monotonic, by who named what did

    def strangers_until(self, missing_bytes: int) -> float:
        """When everything that strangers name is given up, monotonic, going by what is missing of the version.

        By the fastest source, which no number of slow ones makes slower: who poses as faster only shortens it.
        """
        fastest = max(self.downloader.selection.fastest(), FAST_BYTES_PER_SECOND)
        seconds = max(SHARE_OF_FULL * missing_bytes / fastest, LEAST_STRANGERS_SECONDS)
        return self.downloader.clock.monotonic() + seconds

    async def candidates(self, span: Span, until: float) -> list[Candidate]:
        """Whatever is named for the span: first by those whom the run names, then what most name, then what the first
        sources do. This node's own comes alone. Strangers are waited for `until` then."""
        own = self.index.find(span)
        if own is not None and await asyncio.to_thread(self.downloader.store.complete, own) is not None:
            return [Candidate(own, (), trusted=True)]
        trusted, by_root = set(self.trusted()), dict[Digest, list[str]]()
        for source, root in await self._answers(span, trusted, until):
            by_root.setdefault(root, []).append(source)
        named = [Candidate(root, tuple(each), not trusted.isdisjoint(each)) for root, each in by_root.items()]
        return sorted(named, key=lambda candidate: (not candidate.trusted, -len(candidate.sources)))

    async def fetch(self, span: Span, candidates: Sequence[Candidate], most_bytes: int, until: float) -> Found:
        """The first of the candidates that can be had; what strangers named is tried `until` then, each as long as the
        next.

        Raises: NotFound, Malformed, TimeoutError: none can, or is worth it. StoreError.
        """
        chunks = (await self.downloader.manifest(span.target)).chunks
        problem: Exception = NotFound("no source names a patch")
        for left, candidate in zip(range(min(len(candidates), TRIED), 0, -1), candidates, strict=False):
            seconds = None if candidate.trusted else (until - self.downloader.clock.monotonic()) / left
            try:
                async with asyncio.timeout(seconds):
                    return await self._fetch(span, candidate, most_bytes, chunks)
            except Malformed as error:
                self.ban(candidate, error)
                problem = error
            except (NotFound, TimeoutError) as error:
                self._blame(candidate, str(error) or "it came too slowly")
                problem = error
        raise problem

    def ban(self, candidate: Candidate, why: object) -> None:
        """Whoever named it vouched for it: each is asked for nothing any more."""
        for source in candidate.sources:
            self.downloader.selection.ban(source, f"named a wrong patch: {why}")

    def _blame(self, candidate: Candidate, why: str) -> None:
        """Who named it may be slow, no more; a stranger that does so on purpose is to do it once an hour."""
        now = self.downloader.clock.monotonic()
        for source in candidate.sources:
            self.downloader.selection.failed(source, f"named a patch that could not be had: {why}")
        for source in () if candidate.trusted else candidate.sources:
            self._broke_off[source] = now
        for source in [each for each, at in self._broke_off.items() if at < now - BROKE_OFF_SECONDS]:
            del self._broke_off[source]

    def _asked(self, trusted: Collection[str]) -> list[str]:
        """Of those whom the run names some for sure, however many others there are."""
        since, select = self.downloader.clock.monotonic() - BROKE_OFF_SECONDS, self.downloader.selection.few
        sources = [each for each in self.downloader.sources() if self._broke_off.get(each, since) <= since]
        first = select([each for each in sources if each in trusted], TRUSTED_ASKED)
        return [*first, *select([each for each in sources if each not in first], ASKED - len(first))]

    async def _answers(self, span: Span, trusted: Collection[str], until: float) -> list[tuple[str, Digest]]:
        """In the order of the sources; until one whom the run names has named a patch, or a moment after all of those
        have answered: whoever has none yet is about to make one, and is waited for whatever strangers name."""
        asker, clock = self.downloader.asker, self.downloader.clock
        sources = self._asked(trusted)
        asked = [asyncio.create_task(asker.patch(source, span.target, span.base, WAIT_SECONDS)) for source in sources]
        awaited = {task for task, source in zip(asked, sources, strict=True) if source in trusted}
        waiting, named = set(asked), set[asyncio.Task[Digest | None]]()
        try:
            while waiting and not named & awaited:
                limit = 2.0 * WAIT_SECONDS
                if awaited.isdisjoint(waiting):  # only strangers are left
                    limit = GRACE_SECONDS if named or awaited else min(limit, until - clock.monotonic())
                done, waiting = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                named |= {task for task in done if task.result() is not None}
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
        try:
            patch = await asyncio.to_thread(Patch.read, folder / FILE, chunks)
        except Malformed:
            await self.require_as_it_came(candidate)
            raise
        return Found(span, candidate, patch, 0 if here else store.manifest(candidate.root).size)

    async def require_as_it_came(self, candidate: Candidate) -> None:
        """Before anybody is blamed for a wrong patch. Raises: NotFound: this disk has changed it. StoreError."""
        if not await asyncio.to_thread(self.downloader.store.recheck, candidate.root):
            raise NotFound(f"patch {candidate.root.hex()} has changed on this disk")

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
