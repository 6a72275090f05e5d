"""The trainer: turns accepted rollouts into the next version, publishes it, and is the origin of the weights.

A step is on disk, with the groups that it used up, before its version is on chain: killed anywhere, training goes on
from the step that it had, and no group is used twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest, Version
from ledger.errors import (
    CheckpointTooSoon,
    RunIsEnded,
    Unconfirmed,
    Unreachable,
    VersionMismatch,
)
from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.log import event, warn
from node.model_thread import on_model_thread
from node.progress import Progress
from node.roles.accepting import AcceptedGroups
from node.roles.directory import url_of
from node.roles.member import Member
from node.roles.refusals import Refusals
from node.shards.bitmaps import is_whole
from node.training.batch import BatchRule, TrainingGroup
from node.training.step import Learner, StepReport

ANCHOR_EVERY = 32  # versions, of which one is fetched whole by all: that late comers find every chunk is then seen
HANDOVER_SECONDS = 60.0  # for relays to take the last version before the origin goes


@dataclass(slots=True)
class Trainer:
    """The run's trainer key. `base` is the untouched model, version 0; `rule` says what one step takes."""

    member: Member
    learner: Learner
    accepted: AcceptedGroups
    base: Path
    rule: BatchRule
    anchor_every: int = ANCHOR_EVERY
    gathered: int = 0  # rollouts that the next step could take, when it was last looked at

    async def run(self) -> None:
        """Trains to the run's last step, ends the run, and stays until every submission is final.

        Raises: ConfigError: the training state is not what the chain's versions came from.
        """
        await self._catch_up()
        while not self._over():
            await self.member.sync()
            await self.accepted.look(self._next)
            if not await self._step():
                await self.member.wait()
        await self._end()

    @property
    def _next(self) -> Version:
        return Version(self.learner.version + 1)

    def _over(self) -> bool:
        return self.learner.version >= self.member.spec.max_steps or self.member.record.ended is not None

    async def _catch_up(self) -> None:
        """Publishes what a crash, or the run's beginning, left unpublished."""
        member, version = self.member, self.learner.version
        await member.finish_earlier()
        latest = member.record.latest
        if latest is not None and latest > version:
            raise ConfigError(
                f"the chain has version {latest}, the training state here is at step {version}: this is "
                "not the machine, or not the folder, that trained on. Point --home at the right one."
            )
        if latest is None:
            await self._publish(Version(0), self.base)
        if version:
            self._require_lineage()
            await self._publish(version, await self._export())  # compared, if the chain has them already

    def _require_lineage(self) -> None:
        """Raises: ConfigError: the training state is of another run, or went on from other weights than the chain's."""
        if self.learner.lineage != self._lineage():
            raise ConfigError(
                f"the training state here, at step {self.learner.version}, is not of this run: it is of "
                f"'{self.learner.lineage}', and the chain has '{self._lineage()}'. Put back the folder "
                f"{self.member.state.training} that trained this run, or point --home at it"
            )

    def _lineage(self) -> str:
        """What the learner's version came from: this run's version before it, by the weights that the chain names."""
        member, before = self.member, Version(self.learner.version - 1)
        root = member.record.root(before)
        return (
            f"chain {member.ledger.chain_id}, contract {member.ledger.coordinator}, run {member.run.id}, "
            f"version {before}, root {'unpublished' if root is None else root.hex()}"
        )

    # --- Steps

    async def _step(self) -> bool:
        """One optimiser step, where enough has been accepted; whether there was one."""
        batch = self.rule.select(self.accepted.available(), self.learner.consumed, self._next)
        if not self._is_full(sum(len(group.rollouts) for group in batch)):
            return False
        with Progress("training", "tokens", self.member.clock, step=self._next) as progress:
            report = await on_model_thread(self.learner.step, batch, progress)
        self._log(report, batch, progress)
        await self._publish_step()
        await self.member.weights.evict()
        await self.accepted.intake.prune()
        return True

    def _is_full(self, rollouts: int) -> bool:
        """Whether so many make a step; how many there are is said whenever there are more."""
        if self.gathered < rollouts < self.rule.rollouts:
            event("batch gathering", step=self._next, rollouts=rollouts, total_rollouts=self.rule.rollouts)
        self.gathered = rollouts
        return rollouts >= self.rule.rollouts

    def _log(self, report: StepReport, batch: Sequence[TrainingGroup], progress: Progress) -> None:
        versions = sorted({group.version for group in batch})
        event("step", step=self.learner.version, versions=versions, reward=report.mean_reward, loss=report.loss,
              grad_norm=report.grad_norm, clip_share=report.clip_share, skipped=report.skipped,
              **progress.summary(report.tokens))  # fmt: skip

    async def _publish_step(self) -> None:
        """Writes weights and state of the step that was made, then publishes."""
        folder = await self._export()
        await on_model_thread(self.learner.save_state, self.member.state.training / "states", self._lineage())
        await self._publish(self.learner.version, folder)

    async def _export(self) -> Path:
        folder = self.member.state.training / "export"
        await on_model_thread(self.learner.export, folder)
        return folder

    async def _publish(self, version: Version, folder: Path) -> None:
        """Stores the weights in `folder` and has the chain name them, unless the run is over.

        Raises: ConfigError: the chain has other weights as that version.
        """
        member, started = self.member, self.member.clock.monotonic()
        root = await asyncio.to_thread(member.checkpoints.add, folder)
        size = (await asyncio.to_thread(member.checkpoints.manifest, root)).size
        refusals, offering = self._refusals(), asyncio.create_task(self._offer_patch(version, root))
        try:
            while member.record.ended is None and (member.record.latest is None or member.record.latest < version):
                if refusals.resting or not await self._try_to_publish(version, root, size, started, refusals):
                    await member.wait()
                await member.sync()
            await offering
        finally:
            offering.cancel()
            await asyncio.gather(offering, return_exceptions=True)
        published = member.record.root(version)
        if published is not None and published != root:
            raise ConfigError(
                f"the chain has other weights as version {version} than those made here: another trainer process uses "
                "this key, or --home is not the folder that trained on"
            )

    async def _try_to_publish(
        self, version: Version, root: Digest, size: int, started: float, refusals: Refusals
    ) -> bool:
        member = self.member
        try:
            await member.ledger.publish_checkpoint(member.run.id, version, root)
        except (CheckpointTooSoon, VersionMismatch, RunIsEnded, Unreachable, Unconfirmed) as error:
            refusals.note("not published, looking again", error, version=version)
            return False
        event("published", version=version, root=root, bytes=size, seconds=member.clock.monotonic() - started)
        return True

    async def _offer_patch(self, version: Version, root: Digest) -> None:
        """Makes the patch from the version before, beside publication: who hears of this one asks for it at once.

        Every `anchor_every`-th version has none. Without one others fetch the full version; nothing else depends on it.
        """
        member, before = self.member, self.member.record.root(Version(version - 1)) if version else None
        if before is None or version % self.anchor_every == 0:
            return
        started = member.clock.monotonic()
        try:
            size = await member.patching.make(before, root)
        except StoreError as error:
            warn("no patch made, others fetch the full version", version=version, reason=error)
        else:
            if size is not None:
                event("patch made", version=version, bytes=size, seconds=member.clock.monotonic() - started)

    def _refusals(self) -> Refusals:
        """Of one transaction: it is sent again once there is another block."""
        return Refusals(self.member.clock, lambda: self.member.record.head.number)

    # --- The end

    async def _end(self) -> None:
        member, refusals = self.member, self._refusals()
        while member.record.ended is None:
            if refusals.resting or not await self._try_to_end(refusals):
                await member.wait()
            await member.sync()
        while member.record.open_submissions():
            await member.wait()
            await member.sync()
        await self._hand_over()

    async def _try_to_end(self, refusals: Refusals) -> bool:
        try:
            await self.member.ledger.end_run(self.member.run.id)
        except (RunIsEnded, Unreachable, Unconfirmed) as error:
            refusals.note("run not ended, looking again", error)
            return False
        return True

    async def _hand_over(self) -> None:
        """Waits, for a while, until every relay with an endpoint holds the last version."""
        if not self.member.record.checkpoints:
            return  # the run was ended before it had any version
        root = self.member.record.checkpoints[-1].manifest_root
        chunks = self.member.checkpoints.manifest(root).chunks
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
        return is_whole(bitmap, chunks)
