"""Receiving one checkpoint whose manifest is known: which chunk next, from whom, until the last is stored.

From a single source chunks are asked for in order, by long poll, so that a chain of nodes moves in step. With several,
what they say they have is looked at every second and the rarest chunk comes first, so that nodes which receive at the
same time get different chunks and trade them, instead of all drawing on the origin.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ledger.base import Digest
from node.clock import Clock
from node.errors import Malformed, NotFound
from node.progress import OnProgress
from node.shards.asking import Asker
from node.shards.manifest import Manifest
from node.shards.selection import Selection
from node.shards.store import CheckpointStore

MAX_WATCHED = 16  # sources whose bitmaps are followed
UNPROVEN_AT_ONCE = 2  # requests, of `Pace.parallel`, once somebody has sent a chunk: strangers may all stall
DRAWN_FROM = 8  # unproven sources at a time


@dataclass(frozen=True, slots=True)
class Pace:
    """`wait_seconds` is how long one source may hold a request back when it is the only one, else `brief`.

    Without a single new chunk for `patience_seconds` a download ends. A chunk in flight for `late_seconds` is asked
    for a second time elsewhere, once nothing else is left to ask for; a request that takes a source so much longer than
    it took before is given up where there is another one (`Transfer._overdue`). A manifest has `manifest_seconds` to
    come whole. Until the first chunk has come, `begin_seconds` pass before each further request.
    """

    parallel: int = 4
    wait_seconds: int = 30
    brief_wait_seconds: int = 2
    patience_seconds: float = 120.0
    poll_seconds: float = 0.1
    watch_seconds: float = 1.0
    late_seconds: float = 3.0
    manifest_seconds: float = 8.0
    begin_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A missing chunk by its first place; the checkpoint has it in one place or several, `bytes_in_all` together."""

    number: int
    file: int
    chunk: int
    digest: bytes
    length: int
    bytes_in_all: int


@dataclass(slots=True, eq=False)
class _Flight:
    """One request for a chunk; `end` gives it up."""

    number: int
    length: int
    source: str
    since: float
    end: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))


class Transfer:
    """One run over one checkpoint. Of equal chunks only the first is fetched; the store writes them all."""

    def __init__(
        self,
        store: CheckpointStore,
        manifest: Manifest,
        root: Digest,
        asker: Asker,
        selection: Selection,
        sources: Callable[[], Sequence[str]],
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._store = store
        self._root = root
        self._chunks = manifest.chunks
        self._total = manifest.size
        self._asker = asker
        self._selection = selection
        self._sources = sources
        self._clock = clock
        self._pace = pace
        wanted = _missing(manifest, store.have(root))
        self._missing = {each.number: each for each in wanted}
        self._longest = max((each.length for each in wanted), default=0)
        self._first = asyncio.Event()  # a chunk has been stored
        self._left = sum(each.bytes_in_all for each in wanted)
        self._unasked = sorted(self._missing)  # a heap; what is stored meanwhile is skipped when it comes up
        self._flying: set[_Flight] = set()  # at most `pace.parallel`
        self._bitmaps: dict[str, bytes] = {}
        self._offered: list[int] = []  # the next one last
        self._moved_at = clock.monotonic()

    async def run(self, progress: OnProgress) -> None:
        """Returns when every chunk is stored.

        Raises:
            NotFound: no new chunk for `pace.patience_seconds`, or the checkpoint was evicted.
            StoreError: the disk is full or failed.
        """
        progress(self._total - self._left, self._total)
        await self._look()
        tasks = [asyncio.create_task(self._work(progress, number)) for number in range(self._pace.parallel)]
        watch = asyncio.create_task(self._watch())
        try:
            # A worker returns only when nothing is missing: a request that hangs elsewhere is not waited for.
            finished, _ = await asyncio.wait([*tasks, watch], return_when=asyncio.FIRST_COMPLETED)
            for each in finished:
                each.result()
        finally:
            for each in (*tasks, watch):
                each.cancel()
            await asyncio.gather(*tasks, watch, return_exceptions=True)

    async def _work(self, progress: OnProgress, number: int) -> None:
        await self._begin_later(number)
        room = memoryview(bytearray(self._longest))
        while self._missing:
            if self._clock.monotonic() - self._moved_at > self._pace.patience_seconds:
                raise NotFound(self._account())
            wanted = self._next()
            source, wait = self._source(wanted) if wanted is not None else (None, 0)
            if wanted is None or source is None:
                self._ask_later(wanted)
                await self._clock.sleep(self._pace.poll_seconds)
                continue
            flight = _Flight(wanted.number, wanted.length, source, self._clock.monotonic())
            self._flying.add(flight)
            try:
                await self._receive(wanted, flight, wait, room[: wanted.length], progress)
            finally:
                self._flying.discard(flight)
                self._ask_later(wanted)

    async def _begin_later(self, number: int) -> None:
        """The first chunk comes alone, with all of the line to itself: others wait for it to be handed on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), number * self._pace.begin_seconds)

    async def _receive(
        self, wanted: _Wanted, flight: _Flight, wait: int, room: memoryview, progress: OnProgress
    ) -> None:
        source = flight.source
        try:
            async with flight.end:
                came = await self._asker.chunk(source, wanted.digest, room, wait)
        except TimeoutError:
            self._selection.failed(source, "took far longer for a chunk than before")
            return
        if not came:
            return
        try:
            await asyncio.to_thread(self._store.write_chunk, self._root, wanted.file, wanted.chunk, room)
        except Malformed as error:
            self._selection.ban(source, f"served a wrong chunk: {error}")
            return
        self._moved_at = self._clock.monotonic()
        self._first.set()
        if self._missing.pop(wanted.number, None) is not None:
            self._left -= wanted.bytes_in_all
            progress(self._total - self._left, self._total)

    def _next(self) -> _Wanted | None:
        """The chunk to ask for now, taken from what is unasked; None where all that is missing is in flight."""
        flying = self._asked_for()
        while self._offered:
            number = self._offered.pop()
            if number in self._missing and number not in flying:
                return self._missing[number]
        while self._unasked:
            number = heapq.heappop(self._unasked)
            if number in self._missing and number not in flying:
                return self._missing[number]
        return self._late(flying)

    def _asked_for(self) -> dict[int, float]:
        """The chunks in flight, and when each was last asked for."""
        return {flight.number: flight.since for flight in sorted(self._flying, key=lambda flight: flight.since)}

    def _late(self, flying: dict[int, float]) -> _Wanted | None:
        before = self._clock.monotonic() - self._pace.late_seconds
        late = [number for number, since in flying.items() if since < before and number in self._missing]
        return self._missing[late[0]] if late else None

    def _ask_later(self, wanted: _Wanted | None) -> None:
        if wanted is not None and wanted.number in self._missing and wanted.number not in self._asked_for():
            heapq.heappush(self._unasked, wanted.number)

    def _source(self, wanted: _Wanted) -> tuple[str | None, int]:
        """Whom to ask for it, and for how many seconds that one may wait for it itself."""
        everybody = self._sources()
        asked = {flight.source for flight in self._flying if flight.number == wanted.number}
        sources = [each for each in self._selection.usable(everybody) if each not in asked]
        if len(everybody) == 1:
            return self._selection.choose(sources), self._pace.wait_seconds
        busy = {flight.source for flight in self._flying}
        # One request at a time until the first chunk has come: one that stalls must not hold every worker.
        sources = [each for each in sources if each not in busy or self._selection.proven(each)]
        sources = self._bounded(sources, busy)
        holders = [each for each in sources if _has(self._bitmaps.get(each, b""), wanted.number)]
        if holders:
            return self._selection.try_one(holders), 0
        return self._selection.try_one(sources), self._pace.brief_wait_seconds

    def _bounded(self, sources: list[str], busy: set[str]) -> list[str]:
        """The proven ones of `sources`, and unproven ones as far as they may be asked now."""
        proven = [each for each in sources if self._selection.proven(each)]
        if proven and sum(not self._selection.proven(each) for each in busy) >= UNPROVEN_AT_ONCE:
            return proven
        watched = [each for each in sources if each in self._bitmaps and each not in proven]
        others = [each for each in sources if each not in self._bitmaps and each not in proven]
        return [*proven, *watched, *self._selection.few(others, DRAWN_FROM)]

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._pace.watch_seconds)
            for flight in self._overdue():
                flight.end.reschedule(asyncio.get_running_loop().time())
            await self._look()

    def _overdue(self) -> list[_Flight]:
        """Requests to give up, because others can be asked: a source that sent chunks, or was the only one, may stall.

        Of a proven source, what takes far longer than its chunks took before; of another, all but its oldest request.
        Without this a source that sent one chunk holds up every worker for as long as one request may take.
        """
        usable = set(self._selection.usable(self._sources()))
        spared: set[str] = set()
        overdue = []
        for flight in sorted(self._flying, key=lambda flight: flight.since):
            late = self._clock.monotonic() - flight.since - self._pace.late_seconds - self._pace.brief_wait_seconds
            if self._selection.proven(flight.source):
                late -= self._selection.longest_seconds(flight.source, flight.length)
            elif flight.source not in spared:
                spared.add(flight.source)
                continue
            if late > 0 and usable - {flight.source}:
                overdue.append(flight)
        return overdue

    async def _look(self) -> None:
        """Asks what the sources have, if there are several, and orders what to fetch from that."""
        sources = self._selection.usable(self._sources())
        watched = self._selection.few(sources, MAX_WATCHED)
        bitmaps = await asyncio.gather(*(self._bitmap(each) for each in watched)) if len(watched) > 1 else [None]
        self._bitmaps = {each: bits for each, bits in zip(watched, bitmaps, strict=False) if bits is not None}
        self._offered = self._by_rarity()

    async def _bitmap(self, source: str) -> bytes | None:
        try:
            async with asyncio.timeout(self._pace.late_seconds):  # one that stalls must not hide the others
                return await self._asker.have(source, self._root, self._chunks)
        except TimeoutError:
            self._selection.failed(source, f"no bitmap within {self._pace.late_seconds:g} s")
            return None

    def _by_rarity(self) -> list[int]:
        """What is missing and somebody has, the rarest last; equals in an order of this node's own."""
        holders = np.zeros(self._chunks, dtype=np.int64)
        for bits in self._bitmaps.values():
            holders += np.unpackbits(np.frombuffer(bits, np.uint8), count=self._chunks, bitorder="little")
        flying = self._asked_for()
        offered = [number for number in self._missing if holders[number] and number not in flying]
        return sorted(self._selection.shuffled(offered), key=lambda number: -int(holders[number]))

    def _account(self) -> str:
        return (
            f"checkpoint {self._root.hex()}: no chunk came for {self._pace.patience_seconds:.0f} s, {self._left} of "
            f"{self._total} bytes are missing; asked: {self._selection.account(self._sources())}"
        )


def _has(bitmap: bytes, number: int) -> bool:
    return number // 8 < len(bitmap) and bool(bitmap[number // 8] >> number % 8 & 1)


def _missing(manifest: Manifest, have: bytes) -> list[_Wanted]:
    first: dict[bytes, tuple[int, int, int, int]] = {}
    in_all: dict[bytes, int] = {}
    number = -1
    for index, file in enumerate(manifest.files):
        for chunk, digest in enumerate(file.chunks):
            number += 1
            if not _has(have, number):
                first.setdefault(digest, (number, index, chunk, file.length(chunk)))
                in_all[digest] = in_all.get(digest, 0) + file.length(chunk)
    return [
        _Wanted(n, index, chunk, digest, length, in_all[digest]) for digest, (n, index, chunk, length) in first.items()
    ]
