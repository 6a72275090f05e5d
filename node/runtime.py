"""The composition root: puts a role together from its parts, runs it, and takes it down again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eth_account.signers.local import LocalAccount

from ledger.base import Digest, Ledger, Run
from ledger.errors import LedgerError
from node.config import Settings
from node.engines.base import Engine
from node.engines.choice import EngineChoice, make_engine
from node.errors import ConfigError, NodeError, SpecMismatch
from node.log import LOGGER, event, warn
from node.membership import Connect, connected, first_weights, membership, open_run, policy_of, prepared_tasks, served
from node.model_thread import on_model_thread
from node.progress import Progress
from node.roles.accepting import AcceptedGroups
from node.roles.assembly import validator_of
from node.roles.claiming import claim_rewards
from node.roles.frauds import Workmanship, workmanship
from node.roles.gas import paying_gas, require_gas
from node.roles.handover import Handover
from node.roles.intake import Intake
from node.roles.mailbox import FileMailbox
from node.roles.making import Maker
from node.roles.member import Member
from node.roles.registration import Registration
from node.roles.relay import Relay
from node.roles.worker import Worker
from node.rollouts.store import RolloutStore
from node.runspec import RunSpec
from node.training.batch import BatchRule
from node.training.hyper import Hyper

if TYPE_CHECKING:
    from node.training.step import Learner


def _engine(member: Member, choice: EngineChoice, *, generates: bool) -> Engine:
    """Raises: ConfigError."""
    return make_engine(choice, policy_of(member.spec), member.state.engine_log, generates=generates)


async def run_worker(
    settings: Settings,
    connect: Connect,
    wallet: LocalAccount,
    node_key: LocalAccount,
    engine: EngineChoice,
    fraud: str | None = None,
) -> None:
    """Registers, then works until the run's end."""
    work = workmanship(fraud)
    async with connected(connect, wallet) as provider:
        run, _ = await open_run(provider, settings.run)
        if await is_over(provider, run):
            with paying_gas(provider.account):
                await claim_rewards(provider)
            event("the run is over", run=run.id)
            return
        registration = Registration(provider, node_key, run)
        await registration.fuel()  # who cannot pay is told so before the chain is read
        async with membership(connect, node_key, settings) as member:
            await member.sync()
            member.weights.look_at_sources()  # before anything is staked
            await registration.ensure()
            await _work(member, provider, node_key, engine, work)


async def is_over(ledger: Ledger, run: Run) -> bool:
    """Whether the run has ended and none of its submissions is open. Raises: Unreachable."""
    state = await ledger.run_state(run.id)
    return bool(state.ended_at) and not state.open


async def _work(
    member: Member, provider: Ledger, node_key: LocalAccount, engine: EngineChoice, work: Workmanship
) -> None:
    intake = Intake(member, RolloutStore(member.state.rollouts))
    # First of all: open files may be asked for.
    async with served(member, FileMailbox(intake, takes=False), node_key):
        folder = await first_weights(member)
        if folder is None:
            await claim_rewards(provider)
            return
        tasks = await prepared_tasks(member, folder)
        with closing(_engine(member, engine, generates=True)) as chosen:
            maker = Maker(member, chosen, tasks, intake, work)
            await Worker(member, provider, maker, Handover(member)).run()


async def run_validator(settings: Settings, connect: Connect, wallet: LocalAccount, engine: EngineChoice) -> None:
    """Validates until the run's end."""
    async with membership(connect, wallet, settings) as member:
        if member.account not in member.run.params.validators:
            raise ConfigError(
                f"{member.account} is no validator of run {settings.run}: its owner named "
                + ", ".join(member.run.params.validators)
            )
        await require_gas(member.ledger)
        folder = await first_weights(member)
        if folder is None:
            event("the run is over", run=settings.run)
            return
        tasks = await prepared_tasks(member, folder)
        with closing(_engine(member, engine, generates=False)) as chosen:
            validator, mailbox = validator_of(member, wallet, chosen, tasks, contained)
            async with served(member, mailbox, wallet):
                await validator.run()


async def contained(what: str, commitment: Digest, work: Awaitable[bool | None]) -> bool | None:
    """The outcome of what one submission needs; None where it failed, so that the others go on.

    Whatever a stranger's file provokes, a bug of ours included, must not stop a validator: all would stop at once.
    """
    try:
        return await work
    except (NodeError, LedgerError) as error:
        warn(f"{what} interrupted, trying again", commitment=commitment, reason=error)
    except Exception as error:
        LOGGER.exception("%s of 0x%s failed: this is a bug (%s)", what, commitment.hex(), type(error).__name__)
    return None


@dataclass(frozen=True, slots=True)
class Training:
    """What the trainer decides for itself: the base model's folder, rollouts per step, and the optimiser's settings."""

    base: Path
    batch_rollouts: int
    hyper: Hyper


async def run_trainer(settings: Settings, connect: Connect, wallet: LocalAccount, training: Training) -> None:
    """Trains to the run's last step, serving the weights all the while."""
    from node.roles.trainer import Trainer  # brings torch, which only a trainer needs

    async with membership(connect, wallet, settings) as member:
        if member.account != member.run.params.trainer:
            raise ConfigError(
                f"{member.account} is not the trainer of run {settings.run}: {member.run.params.trainer} is"
            )
        await require_gas(member.ledger)
        await asyncio.to_thread(require_base, member, training.base)
        tasks = await prepared_tasks(member, training.base)
        with Progress("loading the model", "", member.clock) as progress:
            learner = await on_model_thread(resumed_learner, member, training)
        event("model loaded", step=learner.version, seconds=progress.seconds)
        intake = Intake(member, RolloutStore(member.state.rollouts))
        async with served(member, FileMailbox(intake, takes=True), wallet):
            accepted = AcceptedGroups(member, tasks, intake)
            await Trainer(member, learner, accepted, training.base, rule_of(member.spec, training)).run()


def rule_of(spec: RunSpec, training: Training) -> BatchRule:
    return BatchRule(
        rollouts=training.batch_rollouts,
        group_size=spec.slot.group_size,
        async_level=spec.async_level,
        max_provider_share=spec.max_provider_share,
    )


def require_base(member: Member, base: Path) -> None:
    """Raises: SpecMismatch: the folder is not the run's version 0."""
    root = member.checkpoints.add(base)
    if root.hex() != member.spec.model.manifest_root:
        raise SpecMismatch(
            f"the model in {base} has manifest root {root.hex()}, the run's base is {member.spec.model.manifest_root}: "
            "give the model that the run was created with as --model"
        )


def resumed_learner(member: Member, training: Training) -> "Learner":
    """A learner at the last step that is on disk here, or at step 0."""
    from node.training.step import Learner  # brings torch, which only a trainer needs

    threads = member.settings.threads or os.cpu_count() or 1
    learner = Learner(training.base, training.hyper, member.spec.sampling.temperature, threads)
    if learner.resume(member.state.training / "states"):
        event("training state found", step=learner.version)
    return learner


async def run_relay(settings: Settings, connect: Connect, wallet: LocalAccount) -> None:
    """Holds and serves weights until it is stopped."""
    async with membership(connect, wallet, settings) as member:
        await require_gas(member.ledger)
        async with served(member, None, wallet):
            await Relay(member).run()


def run_until_stopped(work: Coroutine[None, None, None]) -> bool:
    """Runs a role; whether it came to its own end, rather than being stopped by Ctrl-C or a termination signal."""

    async def supervised() -> bool:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            event("stopped")
            return False
        event("finished: nothing is left to do")
        return True

    return asyncio.run(supervised())
