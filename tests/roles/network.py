"""A whole network in one process: a chain in memory, real sockets, a scripted engine, and a clock that runs fast."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest, Ledger, RunId, State, Version
from ledger.memory import MemoryChain, MemoryLedger
from node.config import Home, Settings
from node.engines.base import Engine
from node.launch import create_run, default_pot
from node.membership import member_of, policy_of, served
from node.peers.server import Mailbox
from node.record import Submission
from node.roles.accepting import AcceptedGroups
from node.roles.assembly import validator_of
from node.roles.frauds import Honest, Workmanship
from node.roles.handover import Handover
from node.roles.intake import Intake
from node.roles.mailbox import FileMailbox
from node.roles.making import Maker
from node.roles.member import Member
from node.roles.registration import Registration
from node.roles.relay import Relay
from node.roles.subject import claim
from node.roles.trainer import Trainer
from node.roles.validator import Validator
from node.roles.worker import Worker
from node.rollouts.assignment import Assignment, assign
from node.rollouts.file import file_root
from node.rollouts.store import RolloutStore
from node.runspec import RunSpec
from node.runtime import contained
from node.tasks.taskset import Taskset
from node.training.batch import BatchRule
from node.training.hyper import Hyper
from node.training.step import Learner
from tests.roles.stage import Connect, Engineered, FastClock, Watched, key, until

OWNER, TRAINER = key(1), key(2)


@dataclass
class Part:
    """One role at work: `stop` ends it as a kill would, `start` of the network starts it anew on the same disk."""

    account: LocalAccount
    member: Member
    role: Any
    mailbox: Any
    stack: AsyncExitStack
    task: asyncio.Task[None] | None = None

    def go(self) -> "Part":
        """Lets the role run."""
        self.task = asyncio.create_task(self.role.run())
        return self

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self.stack.aclose()

    @property
    def finished(self) -> bool:
        return self.task is not None and self.task.done()


@dataclass
class Network:
    """A run with its chain; parts are started by the test and stopped by the fixture."""

    chain: MemoryChain
    folder: Path
    base: Path
    spec: RunSpec
    tasks: Taskset
    run: RunId
    validators: list[LocalAccount]
    quorum: int
    connect: Connect
    settings: dict[str, Any] = field(default_factory=dict)  # of parts that are made from now on
    parts: list[Part] = field(default_factory=list)
    cleanups: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    # --- Parts

    async def part(
        self, account: LocalAccount, make: Callable[[Member], tuple[Any, Mailbox | None]], weights: bool = True
    ) -> Part:
        stack = AsyncExitStack()
        home = Home(self.folder / account.address)
        more = {"poll_seconds": 0.5} | self.settings
        settings = Settings(home, self.run, host="127.0.0.1", allow_private=True, **more)
        member = await stack.enter_async_context(member_of(self.connect(account), settings, FastClock()))
        if weights:
            await asyncio.to_thread(member.checkpoints.add, self.base)
        role, mailbox = make(member)
        await stack.enter_async_context(served(member, mailbox, account if self.settings else None))
        part = Part(account, member, role, mailbox, stack)
        self.parts.append(part)
        return part

    def engine(self, failures: int = 0, error: Exception | None = None) -> Engineered:
        return Engineered(policy_of(self.spec), failures, error)

    async def validator(self, place: int = 0, engine: Engine | None = None, weights: bool = True) -> Part:
        """A validator that answers its peers and has not begun to work."""
        signer = self.validators[place]

        def make(member: Member) -> tuple[Validator, Mailbox]:
            return validator_of(member, signer, engine or self.engine(), self.tasks, contained)

        return await self.part(signer, make, weights)

    async def all_validators(self) -> list[Part]:
        return [(await self.validator(place)).go() for place in range(len(self.validators))]

    async def worker(
        self, number: int = 100, work: Workmanship | None = None, engine: Engine | None = None, weights: bool = True
    ) -> Part:
        """A registered worker that has not begun to work; `number` is its wallet's key, the next one its node's."""
        wallet, node_key = key(number), key(number + 1)
        self.chain.give_native(Address(wallet.address), 10**18)
        provider = self.connect(wallet)
        await Registration(provider, node_key, await provider.run(self.run)).ensure()

        def make(member: Member) -> tuple[Worker, Mailbox]:
            intake = Intake(member, RolloutStore(member.state.rollouts))
            maker = Maker(member, engine or self.engine(), self.tasks, intake, work or Honest())
            return Worker(member, provider, maker, Handover(member)), FileMailbox(intake, takes=False)

        part = await self.part(node_key, make, weights)
        self.chain.mine(3)  # the beacon of its first slot is known now
        return part

    async def trainer(self, learner: Learner | None = None, rollouts: int = 4) -> Part:
        """A trainer that resumes from its disk, one step taking `rollouts`; it has not begun to work."""

        def make(member: Member) -> tuple[Trainer, Mailbox]:
            made = learner or Learner(self.base, Hyper(learning_rate=1e-3), self.spec.sampling.temperature, 1)
            made.resume(member.state.training / "states")
            intake = Intake(member, RolloutStore(member.state.rollouts))
            rule = BatchRule(rollouts, self.spec.slot.group_size, self.spec.async_level, 1.0)
            accepted = AcceptedGroups(member, self.tasks, intake)
            return Trainer(member, made, accepted, self.base, rule), FileMailbox(intake, takes=True)

        return await self.part(TRAINER, make)

    async def relay(self) -> Part:
        return await self.part(key(3), lambda member: (Relay(member), None), weights=False)

    # --- What a node may commit to, honest or not

    async def assignment(self, part: Part, beacon: Digest | None = None) -> Assignment:
        """The next slot, in version 0, of a worker that is not running; `beacon` instead of the chain's."""
        member, version = part.member, Version(0)
        await member.sync()
        slot = await member.ledger.slot(self.run, version, part.account.address)
        block = member.record.beacon_block(version, member.account, slot)
        assert block is not None
        found = beacon or await member.ledger.beacon(block)
        manifest_root = member.record.root(version)
        assert found is not None and manifest_root is not None
        return assign(
            self.spec, member.ledger.chain_id, member.ledger.coordinator, self.run, member.run.spec_digest, version,
            manifest_root, member.account, slot, found,
        )  # fmt: skip

    async def commit(self, part: Part, assignment: Assignment, data: bytes, units: int, serve: bool = True) -> Digest:
        """Commits to `data`, whatever it is; `serve` says whether anybody can get it."""
        root = file_root(data, 1 << 30)
        what = claim(
            part.member, part.member.account, assignment.version, assignment.slot, root, units, assignment.beacon
        )
        if serve:
            part.role.maker.intake.store.put(what.commitment, data)
        await part.member.ledger.submit(what.run, what.version, what.slot, what.root, units, what.beacon)
        return what.commitment

    async def commit_honestly(self, part: Part, beacon: Digest | None = None, serve: bool = True) -> Digest:
        """Commits to what the assignment asks for."""
        assignment = await self.assignment(part, beacon)
        work = await part.role.maker.make(assignment)
        if not serve:
            part.role.maker.intake.store.delete(work.claim.commitment)
        return await self.commit(part, assignment, work.data, work.claim.units, serve)

    # --- Time

    async def pass_time(self, seconds: int) -> None:
        """Moves the chain on, in steps that everybody sees: nobody was away."""
        while seconds > 0:
            step = min(seconds, 4)
            head = self.chain.mine(step).time
            seconds -= step
            await until(
                lambda head=head: all(p.member.record.head.time >= head for p in self.parts if self._runs(p)),  # type: ignore[misc]
                "everybody sees the head",
            )

    def _runs(self, part: Part) -> bool:
        return part.task is not None and not part.task.done()

    @property
    def _running_validators(self) -> list[Part]:
        return [part for part in self.parts if self._runs(part) and isinstance(part.role, Validator)]

    # --- A submission's life

    async def committed(self, count: int = 1) -> list[Submission]:
        """The submissions, once there are `count`, as the first running part knows them."""
        record = self.parts[0].member.record
        await until(lambda: len(record.submissions) >= count, f"{count} submissions")
        return list(record.submissions.values())

    async def confirmed(self, commitment: Digest) -> None:
        """Waits until every running validator has told every other that it holds the file."""
        parts = self._running_validators
        await until(
            lambda: all(len(self.case(part, commitment).haves) >= len(parts) for part in parts), "every Have is there"
        )

    async def audited(self, commitment: Digest) -> None:
        """Moves on to the audit, and waits until every running validator has said to all what it found."""
        await self.pass_time(self.spec.windows.available)
        for _ in range(3):  # the audit beacon is that of two blocks later
            await self.pass_time(1)
        await until(lambda: self.state(commitment).final or self.all_said(commitment), "every verdict is there")

    def all_said(self, commitment: Digest) -> bool:
        """Whether every running validator knows of every other what it found."""
        parts = self._running_validators
        cases = [self.case(part, commitment) for part in parts]
        who = [part.member.account for part in parts]
        return all(each in case.no_faults or case.found(each) for case in cases for each in who)

    async def settled(self, commitment: Digest) -> State:
        """Moves on past every validator's turn to sign, then to settle, and waits for the end."""
        await self.pass_time(24)
        await until(lambda: self.state(commitment).final or self.is_signed(commitment), "a batch")
        await self.pass_time(24)
        return await self.final(commitment)

    def is_signed(self, commitment: Digest) -> bool:
        """Whether a validator has a quorum's signatures for it."""
        return any(commitment in part.role.closer.batcher.batches for part in self._running_validators)

    async def final(self, commitment: Digest) -> State:
        """The submission's final state, once it has one."""
        await until(lambda: self.state(commitment).final, "a final state")
        return self.state(commitment)

    def state(self, commitment: Digest) -> State:
        return self.chain.submissions.state(self.run, commitment).state

    def case(self, part: Part, commitment: Digest) -> Any:
        """What a validator has in memory; an empty case where that is nothing."""
        from node.roles.casebook import Case

        return part.role.casebook.cases.get(commitment, Case(commitment))

    async def live(self, commitment: Digest) -> State:
        """A submission's whole life, where everybody does what is right."""
        await self.confirmed(commitment)
        await self.audited(commitment)
        return await self.settled(commitment)

    async def end_run(self) -> None:
        """Ends the run: nobody makes anything more."""
        await self.connect(TRAINER).end_run(self.run)
        await self.pass_time(1)

    async def stop(self) -> None:
        for part in self.parts:
            await part.stop()
        for cleanup in self.cleanups:
            await cleanup()


async def network_of(
    folder: Path,
    base: Path,
    spec: RunSpec,
    tasks: Taskset,
    validators: int,
    quorum: int | None = None,
    publish: bool = True,
) -> Network:
    """A run with `validators` and, unless told otherwise, version 0 published; nobody works in it yet."""
    chain = MemoryChain()

    def connect(account: LocalAccount) -> Ledger:
        return MemoryLedger(chain, account)

    keys = sorted((key(10 + place) for place in range(validators)), key=lambda each: int(each.address, 16))
    quorum = quorum or validators * 2 // 3 + 1
    addresses = [Address(each.address) for each in keys]
    owner = MemoryLedger(chain, OWNER)
    run = await create_run(owner, spec, Address(TRAINER.address), addresses, quorum, (), default_pot(spec))
    base_root = Digest(bytes.fromhex(spec.model.manifest_root))
    if publish:
        await MemoryLedger(chain, TRAINER).publish_checkpoint(run, Version(0), base_root)
    return Network(chain, folder, base, spec, tasks, run, keys, quorum, connect)


Build = Callable[..., Awaitable[Network]]


def breaking(network: Network, when: str, error: Exception, times: int = 1) -> None:
    """From now on the first `times` submissions fail with `error`, `before` or `after` the chain took them."""
    left = [times]
    plain = network.connect

    def watch(name: str, _: tuple[Any, ...]) -> None:
        if name == "submit" and left[0]:
            left[0] -= 1
            raise error

    network.connect = lambda account: Watched(plain(account), **{when: watch})  # type: ignore[arg-type,assignment]


def files(part: Part) -> tuple[Digest, ...]:
    return tuple(part.role.maker.intake.store.list())
