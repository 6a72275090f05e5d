"""Receiving one checkpoint whose manifest is known, until the last chunk is stored. What is next says `exchange`."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ledger.base import Digest
from node.clock import Clock
from node.errors import Malformed, NotFound
from node.progress import OnProgress
from node.shards.asking import Asker
from node.shards.exchange import Exchange
from node.shards.manifest import Manifest
from node.shards.parts import Parts, keys_of
from node.shards.selection import Selection
from node.shards.store import CheckpointStore
from node.shards.wanted import Flight, Pace, missing_of

MAX_WATCHED = 16  # sources whose bitmaps are followed


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
        me: Callable[[], str | None],
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
        wanted = missing_of(manifest, store.have(root))
        self._missing = {each.number: each for each in wanted}
        self._left = sum(each.bytes_in_all for each in wanted)
        self._longest = max((each.length for each in wanted), default=0)
        self._parts = Parts(
            keys_of([digest for file in manifest.files for digest in file.chunks]), me, selection.shuffled
        )
        self._exchange = Exchange(self._missing, self._parts, selection, sources, clock.monotonic, pace)
        self._told = -1  # bytes, at last
        self._first = asyncio.Event()  # a chunk has been stored
        self._moved_at = clock.monotonic()

    async def run(self, progress: OnProgress) -> None:
        """Returns when every chunk is stored.

        Raises:
            NotFound: no new chunk for `pace.patience_seconds`, or the checkpoint was evicted.
            StoreError: the disk is full or failed.
        """
        self._tell(progress)
        await self._look()
        works = [self._work(progress, number) for number in range(self._pace.parallel)]
        tasks = [asyncio.create_task(each) for each in (*works, self._watch(), self._go_on_telling(progress))]
        try:
            # A worker returns only when nothing is missing: a request that hangs elsewhere is not waited for.
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in finished:
                each.result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, progress: OnProgress, number: int) -> None:
        await self._begin_later(number)
        room = memoryview(bytearray(self._longest))
        while self._missing:
            if self._clock.monotonic() - self._moved_at > self._pace.patience_seconds:
                raise NotFound(self._account())
            flight = self._exchange.next()
            if flight is None:
                await self._clock.sleep(self._pace.poll_seconds)
                continue
            try:
                await self._receive(flight, room[: flight.wanted.length], progress)
            finally:
                self._exchange.ended(flight)

    async def _begin_later(self, number: int) -> None:
        """The first chunk comes alone, with all of the line to itself: others wait for it to be handed on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), number * self._pace.begin_seconds)

    async def _receive(self, flight: Flight, room: memoryview, progress: OnProgress) -> None:
        try:
            async with asyncio.timeout(None) as flight.end:
                came = await self._asker.chunk(
                    flight.source, flight.wanted.digest, room, flight.wait_seconds, flight.arriving
                )
        except TimeoutError:
            if flight.number in self._missing:  # else it came from another one meanwhile
                self._selection.failed(flight.source, "took far longer for a chunk than before")
            came = False
        flight.end = None
        if came:
            await self._store_chunk(flight, room, progress)
        else:
            self._parts.in_vain(flight)

    async def _store_chunk(self, flight: Flight, data: memoryview, progress: OnProgress) -> None:
        wanted = flight.wanted
        try:
            await asyncio.to_thread(self._store.write_chunk, self._root, wanted.file, wanted.chunk, data)
        except Malformed as error:
            self._selection.ban(flight.source, f"served a wrong chunk: {error}")
            return
        self._moved_at = self._clock.monotonic()
        self._first.set()
        self._parts.came(flight)
        if self._missing.pop(wanted.number, None) is not None:
            self._left -= wanted.bytes_in_all
            self._tell(progress)
        for other in self._exchange.flying:
            if other.number == wanted.number and other is not flight:
                other.give_up()

    async def _go_on_telling(self, progress: OnProgress) -> None:
        """On a slow line a chunk takes longer than what is called a stall."""
        while True:
            await self._clock.sleep(self._pace.watch_seconds)
            self._tell(progress)

    def _tell(self, progress: OnProgress) -> None:
        """What is stored and what is arriving: if that turns out wrong or breaks off, it is counted no more."""
        here = self._total - self._left + self._exchange.arriving_bytes()
        if here != self._told:
            self._told = here
            progress(here, self._total)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._pace.watch_seconds)
            for flight in self._exchange.overdue():
                flight.give_up()
            await self._look()

    async def _look(self) -> None:
        """Asks what the sources have, if there are several."""
        sources = self._selection.usable(self._sources())
        watched = self._selection.few(sources, MAX_WATCHED)
        bitmaps = await asyncio.gather(*(self._bitmap(each) for each in watched)) if len(watched) > 1 else [None]
        self._exchange.see({each: bits for each, bits in zip(watched, bitmaps, strict=False) if bits is not None})

    async def _bitmap(self, source: str) -> bytes | None:
        try:
            async with asyncio.timeout(self._pace.late_seconds):  # one that stalls must not hide the others
                return await self._asker.have(source, self._root, self._chunks)
        except TimeoutError:
            self._selection.failed(source, f"no bitmap within {self._pace.late_seconds:g} s")
            return None

    def _account(self) -> str:
        return (
            f"checkpoint {self._root.hex()}: no chunk came for {self._pace.patience_seconds:.0f} s, {self._left} of "
            f"{self._total} bytes are missing; asked: {self._selection.account(self._sources())}"
        )
