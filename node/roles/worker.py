"""The worker: makes the rollouts that its assignment asks for, commits to them on chain, hands them over, gets paid.

The file of a commitment is on disk before the commitment is sent, and a slot's file that was never committed is found
again after a crash: killed anywhere, nothing is lost and nothing is made twice. A finished file goes to the chain as
long as its version is open, even if there is a newer one by then.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ledger.base import Address, Digest, Ledger, Submitted, Version
from ledger.errors import (
    AlreadySubmitted,
    InsufficientStake,
    NodeNotAuthorized,
    PotTooSmall,
    Reverted,
    RunIsEnded,
    SlotMismatch,
    TooManyOpen,
    Unconfirmed,
    Unreachable,
    VersionBehind,
    VersionNotOpen,
)
from ledger.journal import SlotTaken
from node.errors import EngineError, NodeError, NotFound, SpecMismatch
from node.log import event, warn
from node.roles.claiming import claim_patiently
from node.roles.expiring import Expiring
from node.roles.gas import paying_gas
from node.roles.handover import Handover
from node.roles.making import Maker, Work
from node.roles.member import Member
from node.roles.pauses import put_off
from node.roles.pipeline import Begun, Pipeline
from node.roles.refusals import Refusals
from node.roles.slots import Slots
from node.rollouts.assignment import Assignment

ENGINE_TRIES = 3  # in a row, before a worker gives up on its engine

LOOK_AGAIN = (
    SlotMismatch, VersionNotOpen, VersionBehind, TooManyOpen, AlreadySubmitted, RunIsEnded, PotTooSmall, SlotTaken,
    Unreachable, Unconfirmed,
)  # fmt: skip

GAS_ADVICE = "send it some, or run `intellect-node join` again, which gives it gas from the wallet"
TWIN = "not submitted: another process uses this node key, of another home or machine; stop one of them"

Situation = tuple[Version | None, frozenset[Digest]]  # the latest version, and what is open of this node


class OutOfStake(NodeError):
    """The node's allocation does not cover another open submission: it was slashed, or too little was staked."""


@dataclass(slots=True)
class Worker:
    """One node key at work in one run; `provider` signs the claims."""

    member: Member
    provider: Ledger
    maker: Maker
    handover: Handover
    failures: Counter[Version] = field(default_factory=Counter)  # of the engine with each, since it last made a slot
    ran: set[Version] = field(default_factory=set)  # of which the engine has made a slot
    refusals: Refusals = field(init=False)  # of what is to be submitted next
    pipeline: Pipeline = field(init=False)
    slots: Slots = field(init=False)
    expiring: Expiring = field(init=False)

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.maker)
        self.slots = Slots(self.member, self.maker, self.pipeline)
        self.expiring = Expiring(self.member)
        self.refusals = Refusals(self.member.clock, self._situation)

    async def run(self) -> None:
        """Works until the run has ended and every own submission is final, then claims.

        Raises:
            OutOfStake: nothing more can be submitted; what was earned has been claimed.
            EngineError: the model does not run here.
            ConfigError: the node key cannot pay gas.
        """
        await self.member.finish_earlier()
        async with self.member.weights.following():
            try:
                await self._work()
            except OutOfStake:
                await claim_patiently(self.provider, self.member.wait)
                raise
            finally:
                await self.pipeline.drop_ahead()
                await self.handover.close()
        await claim_patiently(self.provider, self.member.wait)

    async def _work(self) -> None:
        while not self._finished():
            await self._hand_over()
            await self.expiring.conclude(self.slots.open())
            if not await self._produce():
                await self.member.wait()
            await self.member.sync()

    def _finished(self) -> bool:
        return self.member.record.ended is not None and not self.slots.open() and not self.slots.unsent

    async def _produce(self) -> bool:
        """Makes and submits the next slot; False where there is nothing to do now."""
        assignment = None if self.refusals.resting else await self.slots.next()
        if assignment is None:
            return False
        try:
            work = await self._made(assignment)
        except NotFound as error:
            self.refusals.note("weights not here, looking again", error, version=assignment.version)
            return False
        except SpecMismatch:  # which was said: another version is next
            await self.pipeline.drop_ahead()
            return False
        except EngineError as error:
            await self.pipeline.drop_ahead()
            self._count_failure(error, assignment)
            return False
        self.failures.clear()
        if work is None:
            return False
        self.ran.add(assignment.version)
        return await self._submit(work)

    async def _made(self, assignment: Assignment) -> Work | None:
        """The work of `assignment`; where the engine takes more than one slot at once, the one after it is begun, too.
        None where it was given up.

        Raises: as `Maker.make`.
        """
        making = self.pipeline.take(assignment)
        if self.pipeline.takes_more and (following := await self.slots.after(assignment)) is not None:
            self.pipeline.begin_ahead(following)
        watching = asyncio.create_task(self._give_up_when_closed(making))
        try:
            return await making.task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():  # this worker is stopped
                raise
            event("slot given up", version=assignment.version, slot=assignment.slot, reason=self._why_closed)
            return None
        finally:
            watching.cancel()

    async def _give_up_when_closed(self, making: Begun) -> None:
        """Reads the chain on while something is made, so that nothing is made that the chain takes no more."""
        while self.member.record.is_open(making.assignment.version):
            await self.member.wait()
            await self.member.look()
        making.task.cancel()

    @property
    def _why_closed(self) -> str:
        return "the version is no longer open" if self.member.record.ended is None else "the run has ended"

    def _situation(self) -> Situation:
        return self.member.record.latest, frozenset(s.made.commitment for s in self.slots.open())

    def _count_failure(self, error: EngineError, assignment: Assignment) -> None:
        """Passes over a version on which it has failed too often to be an accident, if the weights may be to blame.

        Raises: EngineError: it had run this version before, or there is nothing that it has run or may run.
        """
        version, member = assignment.version, self.member
        self.failures[version] += 1
        if self.failures[version] < ENGINE_TRIES:
            warn("engine failed, trying again", reason=error)
            return
        if version in self.ran or not (self.ran or member.versions.has_other(version)):
            raise EngineError(
                f"{self.maker.engine.name} failed {ENGINE_TRIES} times in a row ({error}). Nothing was committed. "
                "Free memory or choose fewer --threads, and start again: it goes on where it stopped."
            ) from error
        member.versions.refuse(version, error)

    async def _submit(self, work: Work) -> bool:
        what = work.claim
        try:
            with paying_gas(self.member.account, GAS_ADVICE):
                sent = await self.member.ledger.submit(
                    what.run, what.version, what.slot, what.root, what.units, what.beacon
                )
        except LOOK_AGAIN as error:
            twin = isinstance(error, AlreadySubmitted)
            self.refusals.note(TWIN if twin else "not submitted, looking again", error, slot=what.slot)
            self.slots.unsent = not isinstance(error, SlotTaken)  # which will be taken for ever
            return False
        except (InsufficientStake, NodeNotAuthorized) as error:
            if not self.slots.open():  # what is open may yet free its stake
                raise OutOfStake(_out_of_stake(self.member.account, error)) from error
            self.refusals.note("not submitted, waiting for open submissions", error, slot=what.slot)
            return False
        event("submitted", version=what.version, slot=what.slot, commitment=what.commitment, units=what.units,
              bytes=len(work.data), due=sent.block.time + self._audited_within)  # fmt: skip
        self.refusals = Refusals(self.member.clock, self._situation)
        await self.maker.intake.prune()
        return True

    @property
    def _audited_within(self) -> int:
        """Seconds from a commitment to when it can be paid."""
        windows = self.member.run.params.windows
        return windows.available + windows.audit

    async def _hand_over(self) -> None:
        """Hands over every own open file that this process has not: also those of a crash, or of a slow chain."""
        for submission in self.slots.open():
            if submission.made.commitment not in self.handover.started:
                self.handover.start(submission.made.commitment, await self._file(submission.made))

    async def _file(self, made: Submitted) -> bytes | None:
        """An own file; one that the disk lost or changed is had from those whom it was handed to, if there are any."""
        intake, data = self.maker.intake, None
        with put_off("an own file not read"):
            data = await asyncio.to_thread(intake.get, made)
            if data is None and await intake.fetch(made.commitment):
                data = await asyncio.to_thread(intake.get, made)
        return data


def _out_of_stake(node: Address, error: Reverted) -> str:
    return (
        f"node {node} can submit no more ({error}): its stake in this run does not cover another open submission. "
        "It was slashed, or too little was staked: `intellect-node status` says which, and `intellect-node join` again "
        "stakes what is missing."
    )
