"""Fetching a checkpoint from strangers, by its root: in parallel, from sources that may still be receiving it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Digest
from node.clock import Clock, SystemClock
from node.errors import Malformed, NotFound
from node.progress import OnProgress, unseen
from node.shards.asking import Asker
from node.shards.manifest import CHUNK_BYTES, Manifest
from node.shards.selection import Selection
from node.shards.store import CheckpointStore
from node.shards.transfer import Transfer
from node.shards.wanted import Pace
from node.transport import Timeouts
from node.transport.connections import Connections

Sources = Callable[[], Sequence[str]]  # base URLs, asked for anew all the time: peers come and go

SPARE_BYTES = CHUNK_BYTES  # that a version may have more than the base: its tensors, and so its size, are the same
MANIFESTS_AT_ONCE = 4  # sources asked for one beside each other


def _nobody() -> None:
    return None


@dataclass(slots=True)
class Downloader:
    """Fetches checkpoints into `store`.

    Memory: `pace.parallel` chunks in flight. `sources` are base URLs, hostile; `connections` decide which addresses are
    reached; what is learnt of sources is noted in `selection`. `base` is the root of the checkpoint that all others are
    versions of. `me` is this node's own URL, as it is among the sources of others.
    """

    store: CheckpointStore
    connections: Connections
    sources: Sources
    selection: Selection
    clock: Clock = field(default_factory=SystemClock)
    pace: Pace = field(default_factory=Pace)
    timeouts: Timeouts = field(default_factory=Timeouts)
    base: Digest | None = None
    me: Callable[[], str | None] = _nobody

    async def fetch(self, root: Digest, progress: OnProgress = unseen) -> Path:
        """The folder of checkpoint `root`, whole and verified; what is here already is not fetched again.

        `progress` gets bytes (here, in all), at once, after every chunk, and meanwhile with what is arriving: if that
        turns out wrong or breaks off, it is taken back.

        Raises:
            NotFound: nothing came from any source for `pace.patience_seconds`; the message says what was tried.
            Malformed: the manifest that the root names is over this protocol's limits, or larger than a version of
                `base` can be; nothing was taken then.
            StoreError: the disk is full or failed.
        """
        here = await asyncio.to_thread(self.store.complete, root)
        if here is not None:
            return here
        manifest = await self.begin(root)
        transfer = Transfer(
            self.store, manifest, root, self.asker, self.selection, self.sources, self.me, self.clock, self.pace
        )
        await transfer.run(progress)
        here = await asyncio.to_thread(self.store.complete, root)
        if here is None:
            raise NotFound(f"checkpoint {root.hex()} was evicted, or changed on this disk, while it was received")
        return here

    async def begin(self, root: Digest) -> Manifest:
        """Has the store make room for checkpoint `root`, and take what it has of it elsewhere. Raises: as `fetch`."""
        manifest = await self.manifest(root)
        if self.base is not None and root != self.base:
            base = await self.manifest(self.base)
            _require_no_larger(manifest, base)
            await asyncio.to_thread(self.store.remember, base)  # others will ask for it here
        await asyncio.to_thread(self.store.begin, manifest)
        return manifest

    async def manifest(self, root: Digest) -> Manifest:
        """The manifest of `root`, from the store or from a source. Raises: as `fetch`."""
        return await asyncio.to_thread(self.store.known, root) or await self._manifest(root)

    @property
    def asker(self) -> Asker:
        return Asker(self.connections, self.timeouts, self.selection, self.clock.monotonic)

    async def _manifest(self, root: Digest) -> Manifest:
        """By long poll, so that what the parent receives just now is had as soon as it has it."""
        started = self.clock.monotonic()
        while True:
            everybody = self.sources()
            sources = self.selection.few(everybody, MANIFESTS_AT_ONCE)
            wait = self.pace.wait_seconds if len(everybody) == 1 else self.pace.brief_wait_seconds
            if not sources:
                await self.clock.sleep(self.pace.poll_seconds)
            elif (manifest := await self._first_manifest(root, sources, wait)) is not None:
                return manifest
            if self.clock.monotonic() - started > self.pace.patience_seconds:
                raise NotFound(
                    f"no source had the manifest of checkpoint {root.hex()} within {self.pace.patience_seconds:.0f} s; "
                    f"asked: {self.selection.account(self.sources())}"
                )

    async def _first_manifest(self, root: Digest, sources: Sequence[str], wait_seconds: int) -> Manifest | None:
        """From whichever of `sources` it comes first; those that take too long have failed."""
        asked = [asyncio.create_task(self._manifest_from(root, source, wait_seconds)) for source in sources]
        try:
            for answer in asyncio.as_completed(asked):
                if (manifest := await answer) is not None:
                    return manifest
            return None
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _manifest_from(self, root: Digest, source: str, wait_seconds: int) -> Manifest | None:
        try:
            async with asyncio.timeout(self.pace.manifest_seconds + wait_seconds):
                return await self.asker.manifest(source, root, wait_seconds)
        except TimeoutError:
            self.selection.failed(source, f"no manifest within {self.pace.manifest_seconds:g} s")
            return None


def _require_no_larger(manifest: Manifest, base: Manifest) -> None:
    if manifest.size > base.size + SPARE_BYTES:
        raise Malformed(f"its manifest claims {manifest.size} bytes, and the run's base model has {base.size}")
