"""The composition root: puts a role together from its parts, runs it, and takes it down again."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eth_account.signers.local import LocalAccount

from ledger.base import Digest, Ledger, Run, RunId
from ledger.errors import LedgerError, Reverted
from node.bans import BANNED, Bans
from node.clock import Clock, SystemClock
from node.config import Settings
from node.engines.base import Engine, Policy
from node.engines.choice import EngineChoice, make_engine
from node.errors import ConfigError, NodeError, NotFound, SpecMismatch, StoreError
from node.files import locked
from node.log import LOGGER, event, warn
from node.model_thread import on_model_thread
from node.peers.client import PeerClient
from node.peers.server import Mailbox
from node.peers.server import add_routes as add_peer_routes
from node.progress import Progress
from node.record import Record
from node.roles.accepting import AcceptedGroups
from node.roles.assembly import validator_of
from node.roles.claiming import claim_rewards
from node.roles.frauds import Workmanship, workmanship
from node.roles.gas import paying_gas, require_gas
from node.roles.handover import Handover
from node.roles.intake import Intake
from node.roles.lending import lending
from node.roles.mailbox import FileMailbox
from node.roles.making import Maker
from node.roles.member import MAX_PAUSE_SECONDS, Member
from node.roles.presence import present
from node.roles.registration import Registration
from node.roles.relay import Relay
from node.roles.worker import Worker
from node.rollouts.store import RolloutStore
from node.runspec import RunSpec
from node.shards.patch_route import add_patch_route
from node.shards.room import is_news
from node.shards.server import add_routes as add_weight_routes
from node.shards.store import CheckpointStore
from node.tasks.taskset import Taskset, load_tasks
from node.tasks.tokenizer import load_tokenizer
from node.terms import require_same_terms
from node.training.batch import BatchRule
from node.training.hyper import Hyper
from node.transport import Uplink, make_app, serve, session
from node.transport.connections import Connections

if TYPE_CHECKING:
    from node.training.step import Learner

Connect = Callable[[LocalAccount], Awaitable[Ledger]]


async def open_run(ledger: Ledger, run: int) -> tuple[Run, RunSpec]:
    """The run and its spec, the spec's digest and terms checked against what the contract holds.

    Raises:
        ConfigError: there is no such run.
        SpecMismatch: the spec is not what the contract enforces.
    """
    try:
        found = await ledger.run(RunId(run))
    except Reverted as error:
        count = await ledger.run_count()
        raise ConfigError(f"there is no run {run} on this chain: it has {count}, numbered from 1") from error
    if hashlib.sha256(found.spec).digest() != found.spec_digest:
        raise SpecMismatch(f"the spec of run {run} does not have the digest that the contract holds")
    spec = RunSpec.parse(found.spec)
    require_same_terms(spec, found.params)
    return found, spec


@asynccontextmanager
async def connected(connect: Connect, account: LocalAccount) -> AsyncIterator[Ledger]:
    """The chain as `account` sees it, for as long as the block runs."""
    ledger = await connect(account)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def membership(connect: Connect, account: LocalAccount, settings: Settings) -> AsyncIterator[Member]:
    """Everything that a role of `account` needs, held against a second process.

    Raises: ConfigError: the account cannot pay gas, or as `member_of`. SpecMismatch, Unreachable.
    """
    async with connected(connect, account) as ledger, member_of(ledger, settings) as member:
        with paying_gas(ledger.account):
            yield member


@asynccontextmanager
async def member_of(ledger: Ledger, settings: Settings, clock: Clock | None = None) -> AsyncIterator[Member]:
    """As `membership`, on a ledger that is open already, by the machine's clock unless another is given."""
    clock = clock or SystemClock()
    run, spec = await open_run(ledger, settings.run)
    state = settings.home.state(ledger.chain_id, ledger.coordinator, settings.run, ledger.account)
    record = Record(run)
    with locked(state.lock):
        private = settings.allow_private
        async with session(private) as http, Connections(private) as connections:
            store = CheckpointStore(state.checkpoints, settings.sharing.quota_bytes)
            bans = await asyncio.to_thread(Bans, store.folder / BANNED)
            uplink = Uplink(settings.sharing.upload_bytes_per_second)
            peers = PeerClient(http, uplink=uplink)
            yield Member(ledger, run, spec, record, settings, state, store, connections, bans, peers, clock, uplink)


@asynccontextmanager
async def served(member: Member, mailbox: Mailbox | None, key: LocalAccount | None = None) -> AsyncIterator[None]:
    """Answers peers while the block runs, and announces on chain where; by libp2p too where `key`, the member's own,
    is given and the settings have it on."""
    app = make_app(max_body=max(1 << 20, mailbox.max_file_bytes if mailbox else 0), uplink=member.uplink)
    declines = None if member.settings.sharing.weights else member.record.is_weights
    add_weight_routes(app, member.shelves, declines)
    if member.settings.sharing.weights:
        add_patch_route(app, member.patching.index)
    if mailbox is not None:
        add_peer_routes(app, mailbox)
    runner, port = await serve(app, member.settings.host, member.settings.port)
    try:
        await member.sync()
        async with lending(member), present(member, mailbox, key, member.settings.announced(port)) as url:
            await _announce(member, url)
            yield
    finally:
        await runner.cleanup()


async def _announce(member: Member, url: str) -> None:
    if member.record.endpoints.get(member.account, "") != url:
        await member.ledger.set_endpoint(url)
    what = "serving" if url else "nobody can connect to this node, as it was told: it hands over what it has itself"
    event(what, url=url or None, account=member.account)


async def first_weights(member: Member) -> Path | None:
    """The folder of the newest version that is here, else of the newest or of version 0, waiting for one to be found.

    Any will do for a start: tokenizer and template are the same in all, and whoever comes back is waited for by
    submissions that are open now. None where the run is over before any could be had.
    """
    waited = False
    while not member.record.is_over:
        await member.sync()
        for version in await member.listed(member.to_start_with):
            try:
                return await member.weights(version)
            except SpecMismatch:
                continue  # which was said
            except NotFound as error:
                event("weights not found yet, trying again", version=version, reason=error)
            except StoreError as error:
                if is_news(error):
                    warn("weights not had yet, trying again", version=version, reason=error, seconds=MAX_PAUSE_SECONDS)
                await member.clock.sleep(MAX_PAUSE_SECONDS)
        if member.record.latest is None and not waited:
            event("waiting for the trainer to publish version 0")
            waited = True
        await member.wait()
    return None


async def prepared_tasks(member: Member, folder: Path) -> Taskset:
    """As `tasks_of`, which takes seconds. Raises: SpecMismatch."""
    with Progress("preparing the tasks", "", member.clock) as progress:
        tasks = await asyncio.to_thread(tasks_of, member.spec, folder)
    event("tasks ready", tasks=[task.name for task in member.spec.tasks], seconds=progress.seconds)
    return tasks


def tasks_of(spec: RunSpec, folder: Path) -> Taskset:
    """The run's prompts and rewards, reproduced from the tokenizer in a model folder. Raises: SpecMismatch."""
    return load_tasks(spec.tasks, load_tokenizer(folder), spec.sampling.max_prompt_tokens)


def policy_of(spec: RunSpec) -> Policy:
    return Policy(
        temperature=spec.sampling.temperature,
        max_output_tokens=spec.sampling.max_output_tokens,
        eos_ids=frozenset(spec.model.eos_ids),
        group_size=spec.slot.group_size,
        max_prompt_tokens=spec.sampling.max_prompt_tokens,
    )


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
            await claim_rewards(provider)
            event("the run is over", run=run.id)
            return
        await Registration(provider, node_key, run).ensure()
        await _work(settings, connect, provider, node_key, engine, work)


async def is_over(ledger: Ledger, run: Run) -> bool:
    """Whether the run has ended and none of its submissions is open. Raises: Unreachable."""
    state = await ledger.run_state(run.id)
    return bool(state.ended_at) and not state.open


async def _work(
    settings: Settings,
    connect: Connect,
    provider: Ledger,
    node_key: LocalAccount,
    engine: EngineChoice,
    work: Workmanship,
) -> None:
    async with membership(connect, node_key, settings) as member:
        intake = Intake(member, RolloutStore(member.state.rollouts))
        async with served(
            member, FileMailbox(intake, takes=False), node_key
        ):  # first of all: open files may be asked for
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
