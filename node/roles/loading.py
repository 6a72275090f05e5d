"""Which version an engine holds: slots of one version may be generated at the same time, another one waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Version
from node.engines.base import Engine
from node.engines.changes import Change, changes_between
from node.errors import EngineError
from node.log import event, warn
from node.model_thread import on_model_thread
from node.progress import Progress
from node.roles.frauds import Workmanship
from node.roles.member import Member


@dataclass(slots=True)
class Loading:
    """Of one worker's engine. version: what it holds; None where that is not known. folder: where that came from."""

    member: Member
    engine: Engine
    work: Workmanship
    version: Version | None = None
    folder: Path | None = None
    users: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.unused.set()

    @asynccontextmanager
    async def holding(self, version: Version) -> AsyncIterator[None]:
        """The engine holds `version` for as long as the block runs.

        Raises:
            EngineError: the engine failed to load it.
            NotFound: the weights are not here.
            SpecMismatch: they come with another tokenizer or template than the run's.
        """
        async with self.turn:
            if self.version != version:
                changes = await self._changes(version)  # while the engine may still be at work
                await self.unused.wait()
                await self._load(version, changes)
            self.users += 1
            self.unused.clear()
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.unused.set()

    async def _changes(self, version: Version) -> list[Change] | None:
        """What makes `version` of what is loaded; None where that is not known, or is too much."""
        if self.version is None or self.folder is None:
            return None
        return await asyncio.to_thread(changes_between, self.folder, await self._weights(version))

    async def _load(self, version: Version, changes: list[Change] | None) -> None:
        weights = await self._weights(version)
        known, self.version = self.version is not None, None  # it is not where the engine failed meanwhile
        with Progress("loading weights", "", self.member.clock, version=version) as progress:
            changed = None
            if known and changes is not None and await on_model_thread(self._patched, weights, changes):
                changed = sum(len(change.indices) for change in changes)
            else:
                await on_model_thread(self.engine.load, weights)
        self.version, self.folder = version, weights
        event("weights loaded", version=version, changed=changed, seconds=progress.seconds, engine=self.engine.name)

    async def _weights(self, version: Version) -> Path:
        """The folder that is really loaded for `version`."""
        return await asyncio.to_thread(self.work.weights, await self.member.weights.folder(version))

    def _patched(self, weights: Path, changes: list[Change]) -> bool:
        try:
            self.engine.patch(weights, changes)
        except EngineError as error:
            warn("weights not changed in place, loading them", reason=error)
            return False
        return True
