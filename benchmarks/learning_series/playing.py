"""Playing the networks of a series that have no result yet."""

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from node.devnet.cast import RoleFailed
from node.devnet.network import play

from .results import Result, load, result, save
from .series import Series

if TYPE_CHECKING:
    from ledger.base import Ledger

STEPS_OF_THE_REST = 5  # what starting and examining take, in steps: only the estimate of the time left needs it
STEPS_BEFORE_AN_ESTIMATE = 4  # the first ones take longer


@dataclass(slots=True)
class Estimate:
    """Lines for people, with an estimate of what is left of all networks."""

    networks: int
    steps: int
    started: float = field(default_factory=time.monotonic)
    done: dict[str, float] = field(default_factory=dict)  # steps by network

    def line(self, network: str, text: str) -> None:
        if "published" in text:
            self.done[network] = min(self.done.get(network, -1.0) + 1, self.steps)
        print(f"[{network}] {text}{self._left()}", flush=True)

    def finished(self, network: str) -> None:
        self.done[network] = self.steps + STEPS_OF_THE_REST

    def _left(self) -> str:
        total, done = self.networks * (self.steps + STEPS_OF_THE_REST), sum(self.done.values())
        if done < STEPS_BEFORE_AN_ESTIMATE:
            return ""
        seconds = (time.monotonic() - self.started) / done * (total - done)
        return f"   (about {seconds / 60:.0f} min left)"


async def play_all(series: Series, seeds: int, folder: Path) -> tuple[list[Result], list[str]]:
    """Results of every arm and seed, those in `folder` taken over; and what went wrong, in words.

    A network that was stopped half-way is begun anew.

    Raises: ConfigError: a stored result is of another series.
    """
    names = [(arm, seed) for seed in range(seeds) for arm in series.arms]
    stored = {name: load(folder, *name, series.parameters()) for name in names}
    missing = [name for name in names if stored[name] is None]
    estimate = Estimate(len(missing), series.steps)
    turn = asyncio.Semaphore(series.at_once)
    played = await asyncio.gather(*(_played(series, *name, folder, estimate, turn) for name in missing))
    results = [one for one in (*stored.values(), *played) if isinstance(one, Result)]
    return sorted(results, key=lambda one: names.index((one.arm, one.seed))), _failures(played)


def _failures(played: Sequence[Result | str]) -> list[str]:
    return [one for one in played if isinstance(one, str)]


async def _played(
    series: Series, arm: str, seed: int, folder: Path, estimate: Estimate, turn: asyncio.Semaphore
) -> Result | str:
    """The result, which is on disk then, or why there is none; the logs stay in the latter case."""
    name = f"{arm} {seed}"
    place = folder / "networks" / f"{arm}-{seed}"
    async with turn:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            found = await play(series.show(arm, seed, place), _connect, lambda line: estimate.line(name, line))
        except RoleFailed as error:
            return f"{name}: {error}"
        made = result(arm, seed, series.parameters(), series.rows, found)
        await asyncio.to_thread(save, made, folder)
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        estimate.finished(name)
        return made


async def _connect(rpc_url: str, deployment: Path) -> "Ledger":
    from ledger.connection import open_ledger

    return await open_ledger([rpc_url], deployment, None, None)
