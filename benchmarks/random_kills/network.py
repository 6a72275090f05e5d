"""A local network whose roles are killed at random moments and started again."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from random_kills.opening import opened, small_spec

from ledger.base import Ledger, RunId
from ledger.devnet import Anvil
from node.devnet.cast import Cast, Player
from node.launch import Plan, default_pot
from node.models.resolve import resolve
from node.reading import Reader
from node.record import Record
from node.runspec import RunSpec, WindowsSpec

VALIDATORS, QUORUM, WORKERS = 4, 3, 3
BATCH = 16  # rollouts of a step: two submissions
WINDOWS = WindowsSpec(available=30, audit=5, settle_by=240, confirm=60, contest=10, panel=0, grace=30)
MANY_STEPS = 10_000  # the owner ends the run
MOST_DEAD = 2  # at a time: a network that never has a quorum proves nothing
TWICE = 0.2  # of the kills are of whoever came back last, within `TWICE_SECONDS`
TWICE_SECONDS = 5.0
DEAD_SECONDS = (0.0, 0.0, 5.0, 15.0)  # one of them, drawn: how long the dead stay so
LEAVING_SECONDS = 600.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for."""

    folder: Path
    kills: int
    seed: int
    pause_seconds: float


@dataclass(slots=True)
class Outcome:
    """A network while it is killed, and after that. `crashes` are ends that nobody asked for."""

    cast: Cast
    ledger: Ledger
    record: Record
    spec: RunSpec
    kills: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    codes: dict[str, int | None] = field(default_factory=dict)  # how everybody left
    seconds: float = 0.0

    def players(self, kind: str) -> list[Player]:
        return [player for name, player in self.cast.players.items() if name.startswith(kind)]


@asynccontextmanager
async def killed(choice: Choice, say: Say) -> AsyncIterator[Outcome]:
    """The outcome, the chain still up; every process is gone by then."""
    base = resolve("tiny", say)
    async with Anvil() as anvil:
        cast = Cast(choice.folder, anvil.rpc_url)
        try:
            outcome = await _begin(anvil, cast, base)
            try:
                await Killing(choice, outcome, say).conduct()
                yield outcome
            finally:
                await outcome.ledger.close()
        finally:
            await cast.stop()


async def _begin(anvil: Anvil, cast: Cast, base: Path) -> Outcome:
    spec = small_spec(base, Plan("chaos", max_open=2, max_steps=MANY_STEPS), WINDOWS)
    kinds = {"trainer": 1, "relay": 1, "validator": VALIDATORS, "worker": WORKERS}
    names = [f"{kind}-{place + 1}" for kind, size in kinds.items() for place in range(size)]
    pot = default_pot(spec.model_copy(update={"max_steps": 200}))
    return Outcome(cast, *await opened(anvil, cast, names, spec, QUORUM, pot), spec)


@dataclass(slots=True)
class Killing:
    """Of one network, from its start until everybody has left."""

    choice: Choice
    outcome: Outcome
    say: Say
    due: dict[str, float] = field(default_factory=dict)  # when the dead come back, monotonic
    last: str = ""  # who came back last
    over: bool = False
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.choice.seed)

    async def conduct(self) -> None:
        """Every kill, then the run's end."""
        started = time.monotonic()
        for name in self.outcome.cast.players:
            await self._start(name)
        reviving = asyncio.create_task(self._revive())
        try:
            for _ in range(self.choice.kills):
                await self._kill_one()
            await self._end()
        finally:
            reviving.cancel()
            await asyncio.gather(reviving, return_exceptions=True)
        await Reader(self.outcome.ledger, self.outcome.record).sync()
        self.outcome.seconds = time.monotonic() - started

    async def _start(self, name: str) -> None:
        player, run = self.outcome.cast.players[name], str(self.outcome.record.run.id)
        common = ("--run", run, "--host", "127.0.0.1", "--allow-private")
        roles = {
            "trainer": ("train", *common, "--model", "tiny", "--threads", "1", "--batch", str(BATCH)),
            "relay": ("relay", *common),
            "validator": ("validate", *common, "--engine", "scripted"),
            "worker": ("join", *common, "--engine", "scripted"),
        }
        await self.outcome.cast.start(player, *roles[name.split("-")[0]])
        self.outcome.starts[name] += 1
        self.last = name

    # --- Death

    async def _kill_one(self) -> None:
        twice = self.rng.random() < TWICE
        pause = self.rng.uniform(0, TWICE_SECONDS) if twice else self.rng.expovariate(1 / self.choice.pause_seconds)
        await asyncio.sleep(pause)
        await until(lambda: len(self.due) < MOST_DEAD)
        alive = sorted(name for name in self.outcome.cast.players if name not in self.due)
        drawn = self.rng.choice(alive)
        name = self.last if twice and self.last in alive else drawn
        process = self.outcome.cast.players[name].process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGKILL)
        await process.wait()
        self.outcome.kills[name] += 1
        self.due[name] = time.monotonic() + self.rng.choice(DEAD_SECONDS)
        total = self.outcome.kills.total()
        if total % 10 == 0:
            await self._tell(total)

    async def _revive(self) -> None:
        """Starts whoever has been dead for long enough, and whoever ended by itself, which is noted."""
        while True:
            for name, player in self.outcome.cast.players.items():
                code = player.process.returncode if player.process else None
                if name in self.due and time.monotonic() >= self.due[name]:
                    await self._start(name)
                    del self.due[name]
                elif name not in self.due and code is not None and not self.over:
                    self.outcome.crashes.append(f"{name} ended with {code}:\n{player.tail()}")
                    self.say(f"{name} ended with {code}")
                    await self._start(name)
            await asyncio.sleep(0.1)

    async def _tell(self, total: int) -> None:
        record = self.outcome.record
        await Reader(self.outcome.ledger, record).sync()
        states = Counter(submission.state.name.lower() for submission in record.submissions.values())
        said = ", ".join(f"{name} {number}" for name, number in states.items())
        self.say(f"{total} kills, version {record.latest}, submissions: {said or 'none'}")

    # --- The end

    async def _end(self) -> None:
        """The owner ends the run; trainer, validators and workers leave by themselves."""
        await until(lambda: not self.due)
        await self._tell(self.outcome.kills.total())
        run = RunId(self.outcome.record.run.id)
        await self.outcome.ledger.end_run(run)
        self.over = True
        leaving = [player for kind in ("trainer", "validator", "worker") for player in self.outcome.players(kind)]
        await until(lambda: all(p.process and p.process.returncode is not None for p in leaving), LEAVING_SECONDS)
        self.outcome.codes = {player.name: player.process.returncode for player in leaving if player.process}
        await self.outcome.cast.stop()


async def until(holds: Callable[[], bool], seconds: float = float("inf")) -> None:
    """Waits until `holds`, or for so many `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        if holds() or time.monotonic() > deadline:
            return
        await asyncio.sleep(0.1)
