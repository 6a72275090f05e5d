"""How good the versions of a local network became: fetched while the network has them, examined when it is over."""

import asyncio
import json
from dataclasses import dataclass, field

from ledger.base import Ledger, Version
from node.config import Home
from node.devnet.cast import Cast, Player
from node.errors import NotFound
from node.exports import Say, fetch_checkpoint
from node.record import Record
from node.training.evaluation import Accuracy

AT_ONCE = 2  # processes with a model each


@dataclass(slots=True)
class Examination:
    """`versions` are the numbers to examine, on `samples` answers to each held-out prompt; 0: none at all."""

    cast: Cast
    observer: Player
    engine: str
    run: int
    versions: tuple[int, ...]
    samples: int
    fetched: set[int] = field(default_factory=set)

    async def fetch(self, ledger: Ledger, record: Record) -> None:
        """Fetches what is published and not here yet: nodes forget versions once a few newer ones are there."""
        published = len(record.checkpoints)
        for version in self.versions if self.samples else ():
            if version < published and version not in self.fetched:
                try:
                    await fetch_checkpoint(ledger, self.run, version, Home(self.observer.home), True, _silent)
                except NotFound:  # not with anybody yet
                    return
                self.fetched.add(version)

    async def accuracies(self, say: Say) -> dict[Version, Accuracy]:
        """Raises: RoleFailed."""
        if not self.samples:
            return {}
        say(f"examining versions {', '.join(map(str, self.versions))} on held-out prompts")
        turn = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(*(self._examined(version, turn) for version in self.versions))
        return {Version(version): answer for version, answer in zip(self.versions, answers, strict=True)}

    async def _examined(self, version: int, turn: asyncio.Semaphore) -> Accuracy:
        async with turn:
            answer = await self.cast.call(
                self.observer, "checkpoints", "examine", str(version), "--run", str(self.run),
                "--samples", str(self.samples), "--engine", self.engine, "--threads", "1", "--allow-private", "--json",
                signing=False,
            )  # fmt: skip
        found = json.loads(answer)
        return Accuracy(found["mean"], found["standard_error"], found["prompts"], found["samples"])


def _silent(line: str) -> None:
    """The network has a progress of its own."""
