"""What every role needs of a run: opened, answered for among peers, with weights and tasks at hand."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from eth_account.signers.local import LocalAccount

from ledger.base import Ledger, Run, RunId
from ledger.errors import Reverted
from node.bans import BANNED, Bans
from node.clock import Clock, SystemClock
from node.config import Settings
from node.engines.base import Policy
from node.errors import ConfigError, NotFound, SpecMismatch, StoreError
from node.files import locked
from node.log import event, warn
from node.peers.client import PeerClient
from node.peers.server import Mailbox
from node.peers.server import add_routes as add_peer_routes
from node.progress import Progress
from node.record import Record
from node.roles.gas import paying_gas
from node.roles.lending import lending
from node.roles.member import Member
from node.roles.presence import present
from node.roles.weights import MAX_PAUSE_SECONDS
from node.runspec import RunSpec
from node.shards.patch_route import add_patch_route
from node.shards.room import is_news
from node.shards.server import add_routes as add_weight_routes
from node.shards.store import CheckpointStore
from node.tasks.taskset import Taskset, load_tasks
from node.tasks.tokenizer import load_tokenizer
from node.terms import require_same_terms
from node.transport import Uplink, make_app, serve, session
from node.transport.connections import Connections

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
        for version in await member.weights.listed(member.versions.to_start_with):
            try:
                return await member.weights.folder(version)
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
