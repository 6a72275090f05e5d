"""Running a local network from its first block to its closing table."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Ledger
from ledger.devnet import Anvil
from node.devnet.cast import STOP_SECONDS, Cast, Player, RoleFailed
from node.devnet.examining import Examination
from node.devnet.observer import Observer
from node.devnet.report import Report, report
from node.peers.client import PeerClient
from node.queries import read_record
from node.transport import session

UNBONDING_SECONDS = 600  # longer than all windows of a local run
VALIDATOR_NICENESS, WORKER_NICENESS = 5, 10  # on one machine the trainer is what everybody waits for
FUNDS_WEI = 10 * 10**18
LOOK_SECONDS = 1.0
ENDING_SECONDS = 120.0  # for workers to claim and every role to leave once all is final

Say = Callable[[str], None]
Connect = Callable[[str, Path], Awaitable[Ledger]]  # (RPC URL, deployment file)


@dataclass(frozen=True, slots=True)
class Show:
    """What a local network is asked to play, and how long it may take."""

    folder: Path
    model: str = "smollm2"
    engine: str = "transformers"
    workers: int = 2
    validators: int = 2
    cheat: str | None = "other-model"
    steps: int = 10
    held_out_samples: int = 4  # of each held-out prompt; 0: no examination
    seconds: float = 1500.0
    task: str | None = None  # None: the preset's
    settings: tuple[str, ...] = ()  # of the task, `name=value` each
    examined: tuple[int, ...] | None = None  # versions; None: the first and the last
    libp2p: bool = True

    @property
    def checker(self) -> str:
        """The engine of validators: with another one than the workers', they show that engines agree."""
        return self.engine if self.engine == "scripted" else "transformers"

    @property
    def versions(self) -> tuple[int, ...]:
        return (0, self.steps) if self.examined is None else self.examined


@dataclass(frozen=True, slots=True)
class Roles:
    """Who plays what."""

    owner: Player
    trainer: Player
    relay: Player
    validators: tuple[Player, ...]
    workers: tuple[Player, ...]
    cheater: Player | None

    @property
    def everybody(self) -> tuple[Player, ...]:
        cheater = (self.cheater,) if self.cheater else ()
        return (self.owner, self.trainer, self.relay, *self.validators, *self.workers, *cheater)


async def play(show: Show, connect: Connect, say: Say) -> Report:
    """Plays the whole show; every process is gone afterwards, however it ends.

    Raises: RoleFailed: a process ended as it should not have, or the time was over.
    """
    started = time.monotonic()
    async with Anvil() as anvil:
        cast = Cast(show.folder, anvil.rpc_url)
        try:
            roles = _players(cast, show)
            for player in roles.everybody:
                await anvil.fund(player.address, FUNDS_WEI)
            run = await _create(show, cast, roles, say)
            where = f"--rpc {anvil.rpc_url} --deployment {cast.deployment}"
            say(f"from another shell, while it runs: intellect-node run show --run {run} {where}")
            ledger = await connect(anvil.rpc_url, cast.deployment)
            try:
                return await _perform(show, cast, roles, ledger, run, say, started)
            finally:
                await ledger.close()
        except (asyncio.CancelledError, RoleFailed):
            say(f"stopping the players, which takes up to {STOP_SECONDS:.0f} s")
            raise
        finally:
            await cast.stop()


def _players(cast: Cast, show: Show) -> Roles:
    return Roles(
        owner=cast.player("owner"),
        trainer=cast.player("trainer"),
        relay=cast.player("relay"),
        validators=tuple(cast.player(f"validator-{place + 1}") for place in range(show.validators)),
        workers=tuple(cast.player(f"worker-{place + 1}") for place in range(show.workers)),
        cheater=cast.player("cheater") if show.cheat else None,
    )


async def _create(show: Show, cast: Cast, roles: Roles, say: Say) -> int:
    """Deploys the contracts and creates the run, by the commands that anybody would use."""
    say("deploying the contracts")
    await cast.call(
        roles.owner, "deploy", "--out", str(cast.deployment), "--unbonding", str(UNBONDING_SECONDS), deployed=False
    )
    say(f"creating a run of {show.steps} steps with model {show.model}")
    validators = [word for player in roles.validators for word in ("--validator", player.address)]
    task = ["--task", show.task] if show.task else []
    settings = [word for setting in show.settings for word in ("--set", setting)]
    answer = await cast.call(
        roles.owner, "run", "create", "--model", show.model, "--pace", "local", "--steps", str(show.steps),
        "--trainer", roles.trainer.address, "--relay", roles.relay.address, *validators, *task, *settings, "--json",
    )  # fmt: skip
    return int(json.loads(answer)["run"])


async def _start(show: Show, cast: Cast, roles: Roles, run: int) -> None:
    """Starts every role as its own process, each through the command that people use."""
    common = ("--run", str(run), "--host", "127.0.0.1", "--allow-private", *(() if show.libp2p else ("--no-p2p",)))
    engine = ("--engine", show.engine, "--threads", "1")
    checker = ("--engine", show.checker, "--threads", "1")
    await cast.start(roles.trainer, "train", *common, "--model", show.model, "--threads", "1")
    await cast.start(roles.relay, "relay", *common)
    for player in roles.validators:
        await cast.start(player, "validate", *common, *checker, niceness=VALIDATOR_NICENESS)
    for player in roles.workers:
        await cast.start(player, "join", *common, *engine, niceness=WORKER_NICENESS)
    if roles.cheater and show.cheat:
        await cast.start(roles.cheater, "join", *common, *engine, "--cheat", show.cheat, niceness=WORKER_NICENESS)


async def _perform(show: Show, cast: Cast, roles: Roles, ledger: Ledger, run: int, say: Say, started: float) -> Report:
    spec, record = await read_record(ledger, run)
    async with session(allow_private=True) as http:
        seen = Observer(ledger, spec, record, PeerClient(http), {}, say, started)
        exam = Examination(cast, cast.player("observer"), show.checker, run, show.versions, show.held_out_samples)
        await _start(show, cast, roles, run)
        await _until_final(show, roles, seen, exam, started)
        await _until_left(roles, seen)
        accuracy = await exam.accuracies(say)
    cheater = roles.cheater.node if roles.cheater else None
    return report(seen, cheater, show.cheat, accuracy, time.monotonic() - started)


async def _until_final(show: Show, roles: Roles, seen: Observer, exam: Examination, started: float) -> None:
    """Watches until the run has ended and every submission has its final state."""
    while seen.record.ended is None or any(seen.record.open_submissions()):
        if time.monotonic() - started > show.seconds:
            raise RoleFailed(
                f"the run did not end within {show.seconds:.0f} s: --seconds gives it longer, --folder keeps logs"
            )
        seen.names = {player.node: player.name for player in roles.everybody} | {
            player.address: player.name for player in roles.everybody
        }
        await look(roles, seen)
        await exam.fetch(seen.ledger, seen.record)
        await asyncio.sleep(LOOK_SECONDS)


async def look(roles: Roles, seen: Observer) -> None:
    """What is new on the chain. Who has left is looked at before: if the run had ended by then, the chain shows that.

    Raises: RoleFailed: a role ended by an error, or before the run did.
    """
    left = _left(roles)
    await seen.look()
    _require_honest_end(left, bool(seen.record.ended))


def _left(roles: Roles) -> list[tuple[Player, int]]:
    """Honest roles whose process has ended, and with which exit code."""
    honest = [player for player in roles.everybody if player is not roles.cheater]
    codes = [(player, player.process.returncode if player.process else None) for player in honest]
    return [(player, code) for player, code in codes if code is not None]


def _require_honest_end(left: list[tuple[Player, int]], ended: bool) -> None:
    """Raises: RoleFailed: a role ended by an error, or before the run did."""
    for player, code in left:
        if not ended or code != 0:
            raise RoleFailed(f"{player.name} ended with {code}:\n{player.tail()}")


async def _until_left(roles: Roles, seen: Observer) -> None:
    """Waits until trainer, validators and workers have left by themselves. Raises: RoleFailed."""
    leaving = (roles.trainer, *roles.validators, *roles.workers)
    waits = [asyncio.create_task(p.process.wait()) for p in leaving if p.process]
    deadline = time.monotonic() + ENDING_SECONDS
    while not all(wait.done() for wait in waits):
        if time.monotonic() > deadline:
            late = [p.name for p in leaving if p.process and p.process.returncode is None]
            raise RoleFailed(f"the run is over and did not let go of {', '.join(late)}")
        await seen.look()
        await asyncio.sleep(LOOK_SECONDS)
    _require_honest_end(_left(roles), ended=True)
    await seen.look()
