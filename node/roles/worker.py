"""The worker: makes the rollouts that its assignment asks for, commits to them on chain, hands them over, gets paid.

The file of a commitment is on disk before the commitment is sent, and a slot's file that was never committed is found
again after a crash: killed anywhere, nothing is lost and nothing is made twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hashing.merkle import leaf_hash, root
from ledger.base import Address, Digest, Ledger, Version
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
from node.checks.base import cheap
from node.checks.subject import Claim
from node.engines.base import Engine
from node.errors import Malformed, NodeError, NotFound
from node.log import event, warn
from node.roles.directory import file_receivers
from node.roles.frauds import Honest, Workmanship
from node.roles.intake import Intake
from node.roles.member import Member
from node.roles.subject import claim as claim_in
from node.roles.subject import decoded_subject
from node.rollouts.assignment import Assignment, assign, file_units
from node.rollouts.file import decode_file, encode_file, split_file
from node.rollouts.rollout import Rollout, Sample
from node.tasks.taskset import Taskset
from node.verdicts import Rejected

PUSH_SECONDS = 0.5  # between two tries of handing a file over; doubled each time
PUSH_TRIES = 8

TRANSIENT = (SlotMismatch, VersionNotOpen, VersionBehind, TooManyOpen, AlreadySubmitted)


class OutOfStake(NodeError):
    """The node's allocation does not cover another open submission: it was slashed, or too little was staked."""


@dataclass(slots=True)
class Worker:
    """One node key at work in one run; `provider` signs the claims."""

    member: Member
    provider: Ledger
    engine: Engine
    tasks: Taskset
    intake: Intake
    work: Workmanship = field(default_factory=Honest)
    loaded: Version | None = None
    pushes: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Works until the run has ended and every own submission is final, then claims.

        Raises:
            OutOfStake: nothing more can be submitted.
            EngineError: the model does not run here.
        """
        await self.member.sync()
        self._push_again()
        async with self.member.following_weights():
            while not self._finished():
                if not await self._produce():
                    await self.member.wait()
                await self.member.sync()
        await asyncio.gather(*self.pushes, return_exceptions=True)
        await claim(self.provider)

    def _open(self) -> int:
        return sum(s.made.node == self.member.account for s in self.member.record.open_submissions())

    def _finished(self) -> bool:
        return self.member.record.ended is not None and not self._open()

    async def _produce(self) -> bool:
        """Makes and submits the next slot; False where there is nothing to do now."""
        record = self.member.record
        if record.ended is not None or self._open() >= self.member.run.params.max_open:
            return False
        version = await asyncio.to_thread(self.member.newest_held)
        if version is None:
            return False
        assignment = await self._assignment(version)
        if assignment is None:
            return False
        data = await asyncio.to_thread(self._left_behind, assignment)
        if data is None:
            data = await self._make(assignment)
        return await self._submit(assignment, data)

    async def _assignment(self, version: Version) -> Assignment | None:
        """What this node's next slot in `version` is, or None while its beacon is not there."""
        member = self.member
        try:
            slot = await member.ledger.slot(member.run.id, version, member.account)
            block = member.record.beacon_block(version, member.account, slot)
            beacon = None if block is None else await member.ledger.beacon(block)
        except Unreachable as error:
            warn("chain unreachable, trying again", reason=error)
            return None
        manifest_root = member.record.root(version)
        if beacon is None or manifest_root is None:
            return None
        return assign(
            member.spec, member.ledger.chain_id, member.ledger.coordinator, member.run.id, member.run.spec_digest,
            version, manifest_root, member.account, slot, beacon,
        )  # fmt: skip

    def _left_behind(self, assignment: Assignment) -> bytes | None:
        """A file that was made for this very assignment and not committed before a crash."""
        for name in self.intake.store.list():
            if name in self.member.record.submissions:
                continue
            data = self.intake.store.get(name)
            if data is not None and self._claim(assignment, data).commitment == name:
                event("file found again", slot=assignment.slot, commitment=name)
                return data
        return None

    def _claim(self, assignment: Assignment, data: bytes) -> Claim:
        """What committing to `data` under `assignment` binds."""
        spec = self.member.spec
        file_root = Digest(root([leaf_hash(part) for part in split_file(data, self.intake.max_file_bytes)]))
        units = file_units(decode_file(data, spec), spec)
        return claim_in(
            self.member, self.member.account, assignment.version, assignment.slot, file_root, units, assignment.beacon
        )

    async def _make(self, assignment: Assignment) -> bytes:
        await self._load(assignment.version)
        prompts = [self.tasks.item(item).prompt_ids for item in assignment.items]
        started = self.member.clock.monotonic()
        samples = await asyncio.to_thread(self.engine.generate, assignment.seed, prompts, _silent)
        rollouts = self._rollouts(assignment, self.work.samples(samples))
        seconds = self.member.clock.monotonic() - started
        tokens = sum(len(rollout.output_ids) for rollout in rollouts)
        mean = sum(rollout.reward for rollout in rollouts) / len(rollouts)
        event("generated", version=assignment.version, slot=assignment.slot, rollouts=len(rollouts), tokens=tokens,
              tokens_s=tokens / seconds if seconds else 0.0, reward=mean)  # fmt: skip
        return await asyncio.to_thread(encode_file, rollouts)

    async def _load(self, version: Version) -> None:
        if self.loaded == version:
            return
        folder = await self.member.weights(version)
        await asyncio.to_thread(self.engine.load, self.work.weights(folder))
        self.loaded = version
        event("weights loaded", version=version, engine=self.engine.name)

    def _rollouts(self, assignment: Assignment, samples: Sequence[Sample]) -> list[Rollout]:
        size = self.member.spec.slot.group_size
        return [self._rollout(assignment, row // size, row % size, sample) for row, sample in enumerate(samples)]

    def _rollout(self, assignment: Assignment, group: int, index: int, sample: Sample) -> Rollout:
        item = assignment.items[group]
        reward = self.work.reward(self.tasks.score(item, sample.output_ids, sample.finish))
        return Rollout(
            group, index, self.tasks.item(item).prompt_ids, sample.output_ids, sample.logprobs, sample.proofs,
            sample.finish, reward,
        )  # fmt: skip

    async def _submit(self, assignment: Assignment, data: bytes) -> bool:
        what = await asyncio.to_thread(self._claim, assignment, data)
        if self.work.checks_itself:
            await asyncio.to_thread(self._require_sound, what, data)
        await asyncio.to_thread(self.intake.store.put, what.commitment, data)
        try:
            await self.member.ledger.submit(what.run, what.version, what.slot, what.root, what.units, what.beacon)
        except (*TRANSIENT, RunIsEnded, PotTooSmall, Unreachable, Unconfirmed) as error:
            warn("not submitted, looking again", slot=what.slot, reason=error)
            return False
        except (InsufficientStake, NodeNotAuthorized) as error:
            if self._open():  # what is open may yet free its stake
                warn("not submitted, waiting for open submissions", slot=what.slot, reason=error)
                await self.member.wait()
                return False
            raise OutOfStake(_out_of_stake(self.member.account, error)) from error
        event("submitted", version=what.version, slot=what.slot, commitment=what.commitment, units=what.units)
        self._push(what.commitment, data)
        return True

    def _require_sound(self, what: Claim, data: bytes) -> None:
        """Raises: Malformed: the validators' own cheap checks would refuse this file."""
        verdict = cheap(decoded_subject(self.member, self.tasks, what, data))
        if isinstance(verdict, Rejected):
            raise Malformed(f"own rollouts fail check {verdict.check.name}, leaf {verdict.leaf}: {verdict.detail}")

    def _push_again(self) -> None:
        """After a restart: hands over every own file that may not have arrived."""
        for submission in self.member.record.open_submissions():
            if submission.made.node == self.member.account:
                data = self.intake.store.get(submission.made.commitment)
                if data is not None:
                    self._push(submission.made.commitment, data)

    def _push(self, commitment: Digest, data: bytes) -> None:
        for url in file_receivers(self.member.record, self.member.account).values():
            task = asyncio.create_task(self._hand_over(url, commitment, data))
            self.pushes.add(task)
            task.add_done_callback(self.pushes.discard)

    async def _hand_over(self, url: str, commitment: Digest, data: bytes) -> None:
        pause = PUSH_SECONDS
        for _ in range(PUSH_TRIES):
            try:
                await self.member.peers.push_submission(url, commitment, data)
                return
            except NotFound:
                await self.member.clock.sleep(pause)
                pause *= 2
            except Malformed as error:
                warn("file refused", url=url, commitment=commitment, reason=error)
                return
        warn("file not handed over: the receiver can still fetch it here", url=url, commitment=commitment)


async def claim(provider: Ledger) -> int:
    """Claims what is settled for the provider; the amount, 0 if nothing was.

    Raises: Unreachable, Unconfirmed.
    """
    amount = await provider.rewards(provider.account)
    if amount:
        await provider.claim()
        event("claimed", provider=provider.account, amount=amount)
    return amount


def _silent(done: int, total: int) -> None:
    """Generation of one slot takes seconds; its rate is logged at the end."""


def _out_of_stake(node: Address, error: Reverted) -> str:
    return (
        f"node {node} can submit no more ({error}): its stake in this run does not cover another open submission. "
        "It was slashed, or too little was staked: `intellect-node status` says which."
    )
