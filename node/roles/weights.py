"""The weights of a run's versions: had from peers, followed as they are published, deleted when nobody needs them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest, Version
from node.clock import Clock
from node.errors import Malformed, NotFound, SpecMismatch, StoreError
from node.log import event, warn
from node.progress import Progress
from node.roles.askable import OutOfReach
from node.roles.base_model import require_model
from node.roles.pauses import put_off
from node.roles.versions import Versions
from node.runspec import ModelSpec
from node.shards.patching import Patching
from node.shards.room import is_news

FIRST_PAUSE_SECONDS = 1.0  # before weights that could not be had are asked for again; doubled each time
MAX_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Weights:
    """Of `versions`, which are all of one `model`."""

    versions: Versions
    model: ModelSpec
    patching: Patching
    clock: Clock
    keep_versions: int
    poll_seconds: float
    look_elsewhere: Callable[[Digest], Awaitable[None]]  # for a manifest that nobody gives out by HTTP
    next_look: Callable[[], Awaitable[None]]  # until the chain may list more versions
    out_of_reach: OutOfReach

    async def folder(self, version: Version) -> Path:
        """The folder of `version`, fetched from peers if need be, its small files checked against the spec.

        Raises:
            NotFound: unpublished, or no peer has it now.
            SpecMismatch: what the trainer published is not a model of this run; it is asked for no more.
            StoreError: the disk is full or failed.
        """
        if version in self.versions.refused:
            raise self.versions.refused[version]
        try:
            folder = await asyncio.to_thread(self.versions.held, version) or await self._fetch(version)
            await asyncio.to_thread(require_model, folder, self.model)
        except (Malformed, SpecMismatch) as error:
            await asyncio.to_thread(self.versions.require_intact, version)
            raise self.versions.refuse(version, error) from error
        return folder

    def look_at_sources(self) -> None:
        """Warns where all whom weights could be had from announce addresses that this node does not connect to."""
        self.out_of_reach.look(self.patching.downloader.sources())

    async def _fetch(self, version: Version) -> Path:
        record = self.versions.record
        root = record.root(version)
        if root is None:
            raise NotFound(f"version {version} is not published")
        self.look_at_sources()
        await self.evict()  # before: also what was begun and could never be had makes room
        lineage = [checkpoint.manifest_root for checkpoint in record.checkpoints[: version + 1]]
        with Progress("downloading", "bytes", self.clock, resumes=True, version=version) as progress:
            patched = await self.patching.bring(root, lineage, progress)
            folder = await self._received(root, progress)
        moved = progress.summary(progress.moved + patched.moved_bytes)
        event("weights fetched", version=version, patches=patched.patches, **moved, root=root)
        return folder

    async def _received(self, root: Digest, progress: Progress) -> Path:
        try:
            return await self.patching.downloader.fetch(root, progress)
        except NotFound:
            await self.look_elsewhere(root)  # for the next try
            raise

    async def evict(self) -> None:
        """Deletes the weights that nobody needs: all but the newest versions, version 0, what is wanted, and what work
        goes on with. Of these, older versions go where the disk or the quota is full."""
        with put_off("old weights not deleted"):
            await asyncio.to_thread(self._evict)

    def _evict(self) -> None:
        kept, spare = self.versions.roots_to_keep(self.keep_versions)
        self.versions.checkpoints.keep({*kept, *self.patching.index.keep(kept)}, spare)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Fetches each newest version in the background while the block runs; an error that ends that ends the block.

        A node that fetches no weights any more must not look as if it worked.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow())
                yield
                following.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            for version in await self.listed(self.versions.missing):
                try:
                    await self._fetch_while_useful(version)
                    pause = FIRST_PAUSE_SECONDS
                    break  # what is missing is another list now
                except SpecMismatch:
                    continue  # which was said
                except (NotFound, StoreError) as error:
                    if is_news(error):
                        warn("weights not had yet, trying again", version=version, reason=error, seconds=pause)
                    await self.clock.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
            await self.next_look()

    async def listed(self, versions: Callable[[], list[Version]]) -> list[Version]:
        """What `versions`, which looks at the disk, says; nothing, after a while, where the disk refuses."""
        try:
            return await asyncio.to_thread(versions)
        except StoreError as error:
            warn("weights on this disk cannot be looked at, trying again", reason=error, seconds=MAX_PAUSE_SECONDS)
            await self.clock.sleep(MAX_PAUSE_SECONDS)
            return []

    async def _fetch_while_useful(self, version: Version) -> None:
        """As `folder`, but given up when the run has gone past `version`: the line is for newer ones then."""
        fetching = asyncio.ensure_future(self.folder(version))
        try:
            while not fetching.done() and version in await asyncio.to_thread(self.versions.useful):
                await asyncio.wait([fetching], timeout=self.poll_seconds)
            if fetching.done():
                await fetching
            else:
                event("download dropped, the run has gone past it", version=version)
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
