"""A whole network in one process: a chain in memory, real sockets, a scripted engine, and a clock that runs fast."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest, Ledger, RunId, State, Version
from ledger.memory import MemoryChain, MemoryLedger
from node.config import Home, Settings
from node.engines.base import Engine
from node.engines.scripted import ScriptedEngine
from node.launch import create_run, default_pot
from node.peers.server import Mailbox
from node.record import Submission
from node.roles.assembly import validator_of
from node.roles.frauds import Honest, Workmanship
from node.roles.handover import Handover
from node.roles.intake import Intake
from node.roles.mailbox import FileMailbox
from node.roles.making import Maker
from node.roles.member import Member
from node.roles.registration import Registration
from node.roles.validator import Validator
from node.roles.worker import Worker
from node.rollouts.store import RolloutStore
from node.runspec import RunSpec
from node.runtime import contained, member_of, policy_of, served
from node.tasks.taskset import Taskset

SPEED = 40.0  # seconds of the fast clock in one of the machine's
PATIENCE_SECONDS = 20.0  # of the machine's clock, for something to come about

Connect = Callable[[LocalAccount], Ledger]


class FastClock:
    """A `Clock` of which a second passes in 1/40 s; what is waited for comes about, only sooner."""

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


def key(number: int) -> LocalAccount:
    """The key of one participant; small numbers are private keys like any other."""
    return Account.from_key(number.to_bytes(32))


OWNER, TRAINER = key(1), key(2)


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Waits until `condition` holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not come about: {what or condition}")
        await asyncio.sleep(0.005)


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
    parts: list[Part] = field(default_factory=list)

    # --- Parts

    async def part(
        self, account: LocalAccount, make: Callable[[Member], tuple[Any, Mailbox | None]], weights: bool = True
    ) -> Part:
        stack = AsyncExitStack()
        settings = Settings(
            Home(self.folder / account.address), self.run, host="127.0.0.1", allow_private=True, poll_seconds=0.5
        )
        member = await stack.enter_async_context(member_of(self.connect(account), settings, FastClock()))
        if weights:
            await asyncio.to_thread(member.checkpoints.add, self.base)
        role, mailbox = make(member)
        await stack.enter_async_context(served(member, mailbox))
        part = Part(account, member, role, mailbox, stack)
        self.parts.append(part)
        return part

    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(policy_of(self.spec))

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
        """Moves on to the audit, and waits until every running validator has said what it found."""
        await self.pass_time(self.spec.windows.available)
        for _ in range(3):  # the audit beacon is that of two blocks later
            await self.pass_time(1)
        parts = self._running_validators

        def said(part: Part) -> bool:
            case = self.case(part, commitment)
            return all(p.member.account in case.no_faults or case.found(p.member.account) for p in parts)

        await until(lambda: all(said(part) for part in parts), "every verdict is there")

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

    async def end_run(self) -> None:
        await self.connect(TRAINER).end_run(self.run)
        await self.pass_time(self.spec.windows.grace + 2)

    async def stop(self) -> None:
        for part in self.parts:
            await part.stop()


async def network_of(
    folder: Path,
    base: Path,
    spec: RunSpec,
    tasks: Taskset,
    validators: int,
    quorum: int | None = None,
    wrap: Callable[[MemoryLedger], Ledger] | None = None,
) -> Network:
    """A run with `validators` and version 0 published; nobody works in it yet."""
    chain = MemoryChain()

    def connect(account: LocalAccount) -> Ledger:
        ledger = MemoryLedger(chain, account)
        return wrap(ledger) if wrap else ledger

    keys = sorted((key(10 + place) for place in range(validators)), key=lambda each: int(each.address, 16))
    quorum = quorum or validators * 2 // 3 + 1
    addresses = [Address(each.address) for each in keys]
    owner = MemoryLedger(chain, OWNER)
    run = await create_run(owner, spec, Address(TRAINER.address), addresses, quorum, (), default_pot(spec))
    root = Digest(bytes.fromhex(spec.model.manifest_root))
    await MemoryLedger(chain, TRAINER).publish_checkpoint(run, Version(0), root)
    return Network(chain, folder, base, spec, tasks, run, keys, quorum, connect)


Build = Callable[..., Awaitable[Network]]
