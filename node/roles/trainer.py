"""The trainer: turns accepted rollouts into the next version, publishes it, and is the origin of the weights.

A step is on disk, with the groups that it used up, before its version is on chain: killed anywhere, training goes on
from the step that it had, and no group is used twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Address, Digest, State, Version
from ledger.errors import CheckpointTooSoon, InvalidSignature, Unconfirmed, Unreachable, VersionMismatch
from ledger.messages import Batch, recover
from node.errors import ConfigError, Malformed, NotFound
from node.log import event, warn
from node.peers.wire import SignedBatch
from node.record import Submission
from node.roles.directory import url_of, validators
from node.roles.intake import Intake
from node.roles.member import Member
from node.rollouts.assignment import assign
from node.rollouts.file import decode_file
from node.tasks.taskset import Taskset
from node.training.batch import BatchRule, TrainingGroup
from node.training.step import Learner, StepReport

HANDOVER_SECONDS = 60.0  # for relays to take the last version before the origin goes


@dataclass(slots=True)
class Trainer:
    """The run's trainer key. `base` is the untouched model, version 0; `rule` says what one step takes."""

    member: Member
    learner: Learner
    tasks: Taskset
    intake: Intake
    base: Path
    rule: BatchRule
    accepted: dict[Digest, tuple[TrainingGroup, ...]] = field(default_factory=dict)

    async def run(self) -> None:
        """Trains to the run's last step, ends the run, and stays until every submission is final.

        Raises: ConfigError: the chain has versions that this trainer's state does not know.
        """
        await self._catch_up()
        while self.learner.version < self.member.spec.max_steps:
            await self.member.sync()
            await self._accept()
            if not await self._step():
                await self.member.wait()
        await self._end()

    async def _catch_up(self) -> None:
        """Publishes what a crash, or the run's beginning, left unpublished."""
        while await self.member.sync():
            pass
        latest = self.member.record.latest
        if latest is not None and latest > self.learner.version:
            raise ConfigError(
                f"the chain has version {latest}, the training state here is at step {self.learner.version}: this is "
                "not the machine, or not the folder, that trained on. Point --home at the right one."
            )
        if latest is None:
            await self._publish(Version(0), self.base)
        if self.learner.version and (latest or 0) < self.learner.version:
            await self._publish_step()

    # --- What may be trained on

    async def _accept(self) -> None:
        """Takes in every submission in the async window that a quorum of validators signed."""
        for submission in list(self.member.record.submissions.values()):
            commitment = submission.made.commitment
            if commitment in self.accepted or not self._usable(submission):
                continue
            if not self.intake.holds(commitment) or not await self._signed(submission):
                continue
            self.accepted[commitment] = await self._groups(submission)
            event("accepted", version=submission.made.version, slot=submission.made.slot, commitment=commitment)

    def _usable(self, submission: Submission) -> bool:
        """Not found faulty, and not too old for the next step."""
        oldest = self.learner.version - self.member.spec.async_level
        return submission.state in {State.SUBMITTED, State.SETTLED} and submission.made.version >= oldest

    async def _signed(self, submission: Submission) -> bool:
        if submission.state == State.SETTLED:
            return True
        for url in validators(self.member.record, self.member.account).values():
            try:
                batch = await self.member.peers.batch(url, submission.made.commitment)
            except (NotFound, Malformed):
                continue
            if await asyncio.to_thread(self._is_quorum, batch, submission.made.commitment):
                return True
        return False

    def _is_quorum(self, batch: SignedBatch, commitment: Digest) -> bool:
        """Whether a quorum of the run's validators signed this list, and `commitment` is on it."""
        params = self.member.run.params
        if batch.run != self.member.run.id or commitment not in batch.commitments:
            return False
        message = Batch(batch.run, batch.commitments)
        signers: set[Address] = set()
        for signature in batch.signatures:
            try:
                signers.add(recover(self.member.domain, message, signature))
            except InvalidSignature:
                return False
        return len(signers & set(params.validators)) >= params.quorum

    async def _groups(self, submission: Submission) -> tuple[TrainingGroup, ...]:
        """The file's groups with rewards recomputed here: a worker's own figures are not believed."""
        data = await self.intake.get(submission.made.commitment)
        return await asyncio.to_thread(self._score, submission, data)

    def _score(self, submission: Submission, data: bytes) -> tuple[TrainingGroup, ...]:
        made, size = submission.made, self.member.spec.slot.group_size
        provider = self.member.record.allocated[made.node].provider
        rollouts = decode_file(data, self.member.spec)
        items = self._items(submission)
        groups = []
        for group, item in enumerate(items):
            rows = rollouts[group * size : (group + 1) * size]
            rewards = tuple(self.tasks.score(item, row.output_ids, row.finish) for row in rows)
            groups.append(TrainingGroup(made.commitment, provider, made.version, group, tuple(rows), rewards))
        return tuple(groups)

    def _items(self, submission: Submission) -> tuple[int, ...]:
        made, member = submission.made, self.member
        manifest_root = member.record.checkpoints[made.version].manifest_root
        return assign(
            member.spec, member.ledger.chain_id, member.ledger.coordinator, member.run.id, member.run.spec_digest,
            made.version, manifest_root, made.node, made.slot, made.beacon,
        ).items  # fmt: skip

    # --- Steps

    async def _step(self) -> bool:
        """One optimiser step, where enough has been accepted; whether there was one."""
        groups = [group for groups in self.accepted.values() for group in groups]
        batch = self.rule.select(groups, self.learner.consumed, Version(self.learner.version + 1))
        if sum(len(group.rollouts) for group in batch) < self.rule.rollouts:
            return False
        started = self.member.clock.monotonic()
        report = await asyncio.to_thread(self.learner.step, batch, _silent)
        self._log(report, batch, self.member.clock.monotonic() - started)
        await self._publish_step()
        return True

    def _log(self, report: StepReport, batch: Sequence[TrainingGroup], seconds: float) -> None:
        versions = sorted({group.version for group in batch})
        event("step", step=self.learner.version, versions=versions, reward=report.mean_reward, loss=report.loss,
              grad_norm=report.grad_norm, clip_share=report.clip_share, tokens=report.tokens,
              skipped=report.skipped, seconds=seconds)  # fmt: skip

    async def _publish_step(self) -> None:
        """Writes weights and state of the step that was made, then publishes."""
        folder = self.member.state.training / "export"
        await asyncio.to_thread(self.learner.export, folder)
        await asyncio.to_thread(self.learner.save_state, self.member.state.training / "states")
        await self._publish(self.learner.version, folder)

    async def _publish(self, version: Version, folder: Path) -> None:
        root = await asyncio.to_thread(self.member.checkpoints.add, folder)
        member = self.member
        while member.record.latest is None or member.record.latest < version:
            try:
                await member.ledger.publish_checkpoint(member.run.id, version, root)
                event("published", version=version, root=root)
            except (CheckpointTooSoon, VersionMismatch, Unreachable, Unconfirmed) as error:
                warn("not published, trying again", version=version, reason=error)
                await member.wait()
            await member.sync()

    # --- The end

    async def _end(self) -> None:
        member = self.member
        if member.record.ended is None:
            await member.ledger.end_run(member.run.id)
            event("run ended", version=member.record.latest)
        while member.record.ended is None or any(member.record.open_submissions()):
            await member.wait()
            await member.sync()
        await self._hand_over()

    async def _hand_over(self) -> None:
        """Waits, for a while, until every relay with an endpoint holds the last version."""
        root = self.member.record.checkpoints[-1].manifest_root
        chunks = sum(len(file.chunks) for file in self.member.checkpoints.manifest(root).files)
        waiting = {url for relay in self.member.record.relays if (url := url_of(self.member.record, relay))}
        deadline = self.member.clock.monotonic() + HANDOVER_SECONDS
        while waiting and self.member.clock.monotonic() < deadline:
            waiting = {url for url in waiting if not await self._has_all(url, root, chunks)}
            if waiting:
                await self.member.wait()

    async def _has_all(self, url: str, root: Digest, chunks: int) -> bool:
        try:
            bitmap = await self.member.peers.have(url, root)
        except (NotFound, Malformed):
            return False
        return sum(byte.bit_count() for byte in bitmap) >= chunks


def _silent(done: int, total: int) -> None:
    """A step's figures are logged at its end."""
