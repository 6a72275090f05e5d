"""One network that lives through every kill of the table: all roles die side by side, and each comes back.

The chain's clock is moved on whenever nobody is dead and every validator holds every file, so that windows are long
for those who come back and short for whoever waits.
"""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.random_kills.opening import opened, small_spec
from ledger.base import NOBODY, Ledger, RunId
from ledger.devnet import Anvil
from ledger.messages import Have
from node.devnet.cast import Cast, Player
from node.errors import Malformed, NotFound
from node.launch import Plan, default_pot
from node.models.resolve import resolve
from node.peers.client import PeerClient
from node.reading import Reader
from node.record import Record
from node.roles.directory import validators
from node.runspec import RunSpec, WindowsSpec
from node.training.batch import GroupId
from node.transport import session
from tests.kills.points import ACCUSER, CLAIM, FIRST_STEP, FIRST_VERSION, LAST_STEP, RELAY, VALIDATOR, WORKER, Point
from tests.kills.remains import Remains, consumed, remains_of

TRAP = str(Path(__file__).with_name("trap.py"))
STEPS, BATCH, LEARNING_RATE = 2, 16, 1e-3  # a step takes two submissions
PATIENCE_SECONDS = 600.0  # of this machine's clock, to get to a point: where none is reached the test fails
JUMP_SECONDS = 10  # of the chain's clock
WINDOWS = WindowsSpec(available=90, audit=10, settle_by=1200, confirm=200, contest=20, panel=0, grace=40)


@dataclass(slots=True)
class Campaign:
    """`remains` is what each kill left; `down` names who is dead at the moment."""

    anvil: Anvil
    cast: Cast
    spec: RunSpec
    base: Path
    run: RunId
    ledger: Ledger
    record: Record
    remains: dict[Point, Remains] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # something was submitted
    first_step: frozenset[GroupId] = frozenset()  # the groups that made version 1
    codes: dict[str, int | None] = field(default_factory=dict)  # how everybody left in the end
    status: dict[str, Any] = field(default_factory=dict)  # what `status --json` says to the worker in the end

    def __getitem__(self, name: str) -> Player:
        return self.cast.players[name]

    @property
    def validators(self) -> tuple[Player, Player]:
        return self["validator-1"], self["validator-2"]

    # --- Processes

    def words(self, player: Player) -> tuple[str, ...]:
        place = ("--host", "127.0.0.1", "--port", str(_port(player)), "--allow-private", "--no-p2p")
        common = ("--run", str(self.run), *place)
        match player.name:
            case "trainer":
                choice = ("--model", str(self.base), "--batch", str(BATCH), "--learning-rate", str(LEARNING_RATE))
                return ("train", *common, "--threads", "1", *choice)
            case "relay":
                return ("relay", *common)
            case "cheater":
                return ("join", *common, "--engine", "scripted", "--cheat", "edited-tokens")
            case "worker":
                return ("join", *common, "--engine", "scripted")
            case _:
                return ("validate", *common, "--engine", "scripted")

    async def start(self, *players: Player) -> None:
        """Starts those of `players` that do not run."""
        for player in players:
            if player.process is None or player.process.returncode is not None:
                words = self.words(player)
                await self.cast.start(player, *words, program=(TRAP, str(self._armed(words[0]))))
                self.down.discard(player.name)

    def _armed(self, role: str) -> Path:
        return self.cast.folder / f"armed-{role}"

    async def go_through(self, table: Sequence[Point], *players: Player) -> None:
        """One kill after the other; whoever died last stays dead."""
        for point in table:
            armed = self._armed(point.role)
            armed.with_suffix(".new").write_text(point.name)
            armed.with_suffix(".new").replace(armed)
            await self.start(*players)
            self.remains[point] = await self._death(players)
            armed.unlink(missing_ok=True)

    async def _death(self, players: Sequence[Player]) -> Remains:
        """What the first of `players` to end leaves; if none does, that none died."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for player in players:
                if player.process is not None and player.process.returncode is not None:
                    self.down.add(player.name)
                    died = player.process.returncode == -signal.SIGKILL
                    return remains_of(player.home, died, player.tail(), player.name)
            await asyncio.sleep(0.02)
        return Remains(False, "\n".join(player.tail() for player in players), players[0].name)

    # --- Time

    async def move_on(self, peers: PeerClient) -> None:
        """Moves the chain's clock on while nobody is dead and every validator has signed for every open file."""
        while True:
            await Reader(self.ledger, self.record).sync()
            if self.record.submissions:
                self.begun.set()
            if not self.down and await self._is_all_held(peers):
                await self.anvil.advance(JUMP_SECONDS)
            await asyncio.sleep(0.5)

    async def _is_all_held(self, peers: PeerClient) -> bool:
        urls = validators(self.record, NOBODY).values()
        try:
            for submission in self.record.open_submissions():
                for url in urls:
                    said = await peers.verdicts(url, submission.made.commitment)
                    if sum(isinstance(each.message, Have) for each in said) < len(self.validators):
                        return False
        except (NotFound, Malformed):
            return False
        return True

    # --- The course of things

    async def conduct(self) -> None:
        """Every kill of the table, then the run's end; afterwards every process is gone."""
        async with session(allow_private=True) as http:
            clock = asyncio.create_task(self.move_on(PeerClient(http)))
            try:
                await self.start(self["relay"], *self.validators)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._kill_workers())
                    group.create_task(self._kill_validators())
                    group.create_task(self._kill_trainer_and_relay())
                await self._end()
            finally:
                clock.cancel()
                await asyncio.gather(clock, return_exceptions=True)
        await Reader(self.ledger, self.record).sync()
        words = ("status", "--run", str(self.run), "--wallet", "worker", "--json")
        self.status = json.loads(await self.cast.call(self["worker"], *words, signing=False))

    async def _kill_workers(self) -> None:
        await self.go_through(WORKER, self["worker"])
        await self.start(self["worker"])

    async def _kill_validators(self) -> None:
        await self.begun.wait()
        await self.go_through(VALIDATOR, *self.validators)
        cheating = asyncio.create_task(self._cheat())
        try:
            await self.go_through(ACCUSER, *self.validators)
        finally:
            cheating.cancel()
        await self.start(*self.validators)

    async def _kill_trainer_and_relay(self) -> None:
        await self.go_through(FIRST_VERSION, self["trainer"])
        await self.start(self["trainer"])
        await self.go_through(RELAY, self["relay"])
        await self.start(self["relay"])
        await self.go_through(FIRST_STEP, self["trainer"])
        self.first_step = consumed(self["trainer"].home, 1)
        self.down.discard("trainer")  # until the others have been through theirs

    async def _cheat(self) -> None:
        """A cheater that stakes anew whenever it has lost everything."""
        cheater = self["cheater"]
        while True:
            await self.cast.start(cheater, *self.words(cheater))
            if cheater.process is not None:
                await cheater.process.wait()

    async def _end(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.go_through(CLAIM, self["worker"]))
            group.create_task(self._last_step())
        await self.start(self["worker"])
        leaving = [self["trainer"], self["worker"], *self.validators]
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(player.process.wait() for player in leaving if player.process))
        self.codes = {player.name: player.process.returncode for player in leaving if player.process}
        await self.cast.stop()

    async def _last_step(self) -> None:
        await self.go_through(LAST_STEP, self["trainer"])
        await self.start(self["trainer"])


async def survived(folder: Path) -> Campaign:
    """A campaign that is over."""
    base = resolve("tiny", lambda _: None, folder / "models")
    async with Anvil() as anvil:
        cast = Cast(folder, anvil.rpc_url)
        try:
            campaign = await _begin(anvil, cast, base)
            try:
                await campaign.conduct()
            finally:
                await campaign.ledger.close()
        finally:
            await cast.stop()
    return campaign


async def _begin(anvil: Anvil, cast: Cast, base: Path) -> Campaign:
    """Few submissions are open at a time."""
    spec = small_spec(base, Plan("kills", max_open=4, max_steps=STEPS), WINDOWS)
    names = ("trainer", "relay", "validator-1", "validator-2", "worker", "cheater")
    owner, record = await opened(anvil, cast, names, spec, 2, default_pot(spec, 64))
    return Campaign(anvil, cast, spec, base, record.run.id, owner, record)


def _port(player: Player) -> int:
    """The same one at every start, as for anybody behind a router."""
    file = player.home / "port"
    if not file.exists():
        with socket.create_server(("127.0.0.1", 0)) as server:
            file.write_text(str(server.getsockname()[1]))
    return int(file.read_text())
