"""Patches from strangers: who has one, which of those that are named is fetched, and who is to blame for it.

Anybody can name a patch that never comes whole. What those say whom the run names goes before what others do; for all
that others name there is one limit of time, a small share of what the full version takes on a fast line. Waited for is
who makes patches, and who waits for that one or fetches one that it named: never who merely asks around.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.progress import OnProgress, unseen
from node.shards.asking import Word
from node.shards.client import Downloader
from node.shards.patch_file import Patch
from node.shards.patch_index import Expected, PatchIndex, Span

FILE = "patch"  # the one file of a checkpoint that is a patch
ASKED = 8  # sources asked for a patch beside each other
TRUSTED_ASKED = ASKED // 2  # of them that the run names
WAIT_SECONDS = 10  # for a source that is making or fetching it just now, or waits for who makes it
GRACE_SECONDS = 1.0  # for the others, after a stranger has named one, or those whom the run names have answered
TRIED = 2  # of the patches that are named
LEAST_SECONDS, LEAST_BYTES_PER_SECOND = 30.0, 500e3  # one that comes more slowly is given up, whoever named it
SHARE_OF_FULL = 0.25  # of the time that the full version takes, that what strangers name may cost
FAST_BYTES_PER_SECOND = 125e6  # the line that is taken for that, where none is known to be faster: 1 Gb/s
LEAST_STRANGERS_SECONDS = 5.0  # however small the version: a few round trips, and a chunk or two
BROKE_OFF_SECONDS = 3600.0  # who named one that did not come whole is not asked for any
PATIENCE_SECONDS = 20.0  # for a chunk of a patch


@dataclass(frozen=True, slots=True)
class Named:
    """The URLs of those whom the run names; `maker` makes the patches. `first_hand`: this node is one of them, and
    always asks the maker, since many others have its answer from here."""

    urls: Collection[str] = ()
    maker: str | None = None
    first_hand: bool = False


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
    """Looks at the sources of `downloader`, and fetches into its store. `named`: those whom the run names."""

    downloader: Downloader
    index: PatchIndex
    named: Callable[[], Named] = Named
    _broke_off: dict[str, float] = field(default_factory=dict)  # when, monotonic, by who named what did

    def strangers_until(self, missing_bytes: int) -> float:
        """When everything that strangers name is given up, monotonic, going by what is missing of the version.

        By the fastest source, which no number of slow ones makes slower: who poses as faster only shortens it.
        """
        fastest = max(self.downloader.selection.fastest(), FAST_BYTES_PER_SECOND)
        seconds = max(SHARE_OF_FULL * missing_bytes / fastest, LEAST_STRANGERS_SECONDS)
        return self.downloader.clock.monotonic() + seconds

    async def candidates(self, span: Span, until: float, expected: Expected) -> list[Candidate]:
        """Whatever is named for the span: first by those whom the run names, then what most name, then what the first
        sources do. This node's own comes alone. Strangers are waited for `until` then; if the maker says that there is
        none, they count for nothing.

        The span is `expected` here while the maker may name one, and after it, or another whom the run names, has.
        """
        own = self.index.find(span)
        if own is not None and await asyncio.to_thread(self.downloader.store.complete, own) is not None:
            return [Candidate(own, (), trusted=True)]
        named, by_root = self.named(), dict[Digest, list[str]]()
        for source, root in await self._answers(span, named, until, expected):
            by_root.setdefault(root, []).append(source)
        trusted = set(named.urls)
        found = [Candidate(root, tuple(each), not trusted.isdisjoint(each)) for root, each in by_root.items()]
        if any(candidate.trusted for candidate in found):
            expected.begin(span)
        else:
            expected.end(span)
        return sorted(found, key=lambda candidate: (not candidate.trusted, -len(candidate.sources)))

    async def fetch(
        self,
        span: Span,
        candidates: Sequence[Candidate],
        most_bytes: int,
        until: float,
        progress: OnProgress = unseen,
    ) -> Found:
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
                    return await self._fetch(span, candidate, most_bytes, chunks, progress)
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

    def _asked(self, named: Named) -> list[str]:
        """Of those whom the run names some for sure, however many others there are."""
        since, select = self.downloader.clock.monotonic() - BROKE_OFF_SECONDS, self.downloader.selection.few
        sources = [each for each in self.downloader.sources() if self._broke_off.get(each, since) <= since]
        first = select([each for each in sources if named.first_hand and each == named.maker], 1)
        trusted = [each for each in sources if each in named.urls and each not in first]
        first = [*first, *select(trusted, TRUSTED_ASKED - len(first))]
        return [*first, *select([each for each in sources if each not in first], ASKED - len(first))]

    async def _answers(self, span: Span, named: Named, until: float, expected: Expected) -> list[tuple[str, Digest]]:
        """In the order of the sources, as far as they count and have come by the end of `_settled`."""
        sources, asker = self._asked(named), self.downloader.asker
        asked = {
            source: asyncio.create_task(asker.patch(source, span.target, span.base, WAIT_SECONDS))
            for source in dict.fromkeys(sources)
        }
        maker = asked.get(named.maker or "")
        if maker is not None:
            expected.begin(span)
            maker.add_done_callback(lambda task: None if task.cancelled() or _names(task) else expected.end(span))
        awaited = {task for source, task in asked.items() if source in named.urls}
        try:
            await self._settled(set(asked.values()), awaited, maker, until)
            counting = {source for source in asked if not _denied(maker) or source in named.urls}
            words = {source: task.result() for source, task in asked.items() if task.done() and source in counting}
            return [(source, word.root) for source, word in words.items() if word.root is not None]
        finally:
            for task in asked.values():
                task.cancel()
            await asyncio.gather(*asked.values(), return_exceptions=True)

    async def _settled(self, waiting: set[_Asked], awaited: set[_Asked], maker: _Asked | None, until: float) -> None:
        """Until one whom the run names has named a patch, the maker says that there is none, or a moment after all of
        those have answered: whoever has none yet is about to make or fetch one, and is waited for whatever strangers
        name."""
        now = asyncio.get_running_loop().time
        end, strangers_end = now() + 2.0 * WAIT_SECONDS, now() + until - self.downloader.clock.monotonic()
        named = set[_Asked]()
        while waiting and not named & awaited and not _denied(maker):
            if awaited.isdisjoint(waiting):  # only strangers are left
                end = min(end, now() + GRACE_SECONDS if named or awaited else strangers_end)
            done, waiting = await asyncio.wait(
                waiting, timeout=max(end - now(), 0.0), return_when=asyncio.FIRST_COMPLETED
            )
            named |= set(filter(_names, done))
            if not done:
                return

    async def _fetch(
        self, span: Span, candidate: Candidate, most_bytes: int, chunks: int, progress: OnProgress
    ) -> Found:
        """Raises: as `fetch`."""
        store, here = self.downloader.store, candidate.sources == ()
        folder = await asyncio.to_thread(store.complete, candidate.root) if here else None
        if folder is None:
            folder = await self._content(candidate.root, most_bytes, progress)
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

    async def _content(self, root: Digest, most_bytes: int, progress: OnProgress) -> Path:
        downloader = self._hasty()
        async with asyncio.timeout(LEAST_SECONDS):
            manifest = await downloader.manifest(root)
        if [file.name for file in manifest.files] != [FILE] or manifest.tensors:
            raise Malformed(f"{root.hex()} is no patch")
        if manifest.size > most_bytes:
            raise NotFound(f"one of {manifest.size} bytes, where {most_bytes} are worth it")
        await asyncio.to_thread(downloader.store.remember, manifest)
        async with asyncio.timeout(LEAST_SECONDS + manifest.size / LEAST_BYTES_PER_SECOND):
            return await downloader.fetch(root, progress)

    def _hasty(self) -> Downloader:
        """As the node's own, but less patient; what it learns of sources is shared."""
        pace = replace(
            self.downloader.pace, patience_seconds=min(PATIENCE_SECONDS, self.downloader.pace.patience_seconds)
        )
        return replace(self.downloader, pace=pace, base=None)


_Asked = asyncio.Task[Word]


def _names(task: _Asked) -> bool:
    """Whether it has ended, with a patch."""
    return task.done() and task.result().root is not None


def _denied(maker: _Asked | None) -> bool:
    """Whether it has said that there is none."""
    return maker is not None and maker.done() and maker.result() == Word(None, said=True)
