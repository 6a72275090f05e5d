"""Which version an engine holds: slots of one version may be generated at the same time, another one waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ledger.base import Version
from node.engines.base import Engine
from node.log import event
from node.model_thread import on_model_thread
from node.progress import Progress
from node.roles.frauds import Workmanship
from node.roles.member import Member


@dataclass(slots=True)
class Loading:
    """Of one worker's engine. version: what it holds; None where that is not known."""

    member: Member
    engine: Engine
    work: Workmanship
    version: Version | None = None
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
                await self.unused.wait()
                await self._load(version)
            self.users += 1
            self.unused.clear()
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.unused.set()

    async def _load(self, version: Version) -> None:
        folder = await self.member.weights(version)
        weights = await asyncio.to_thread(self.work.weights, folder)
        self.version = None
        with Progress("loading weights", "", self.member.clock, version=version) as progress:
            await on_model_thread(self.engine.load, weights)
        self.version = version
        event("weights loaded", version=version, seconds=progress.seconds, engine=self.engine.name)
