"""Making the file that an assignment asks for: found again after a crash, else generated; checked either way."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.base import Digest
from node.checks.base import cheap
from node.checks.subject import Claim
from node.engines.base import Engine
from node.errors import EngineError, Malformed, StoreError
from node.log import event, warn
from node.model_thread import abandonable, on_model_thread
from node.progress import Progress
from node.roles.frauds import Honest, Workmanship
from node.roles.intake import Intake
from node.roles.loading import Loading
from node.roles.member import Member
from node.roles.subject import claim as claim_in
from node.roles.subject import decoded_subject
from node.rollouts.assignment import Assignment, file_units
from node.rollouts.file import decode_file, encode_file, file_root
from node.rollouts.rollout import Rollout, Sample
from node.tasks.taskset import Taskset
from node.verdicts import Rejected

SPARE_FILES = 16  # files that were made and never committed, kept beside as many as may be open


@dataclass(frozen=True, slots=True)
class Work:
    """A file, and what committing to it binds."""

    claim: Claim
    data: bytes


@dataclass(slots=True)
class Maker:
    """Of one worker."""

    member: Member
    engine: Engine
    tasks: Taskset
    intake: Intake
    work: Workmanship = field(default_factory=Honest)
    loading: Loading = field(init=False)
    found: Digest | None = None  # the file that was last made, or said to be found again

    def __post_init__(self) -> None:
        self.loading = Loading(self.member, self.engine, self.work)

    @property
    def at_once(self) -> int:
        """Assignments that are better made at the same time than one after the other."""
        return self.engine.slots_at_once

    async def make(self, assignment: Assignment) -> Work:
        """The work of `assignment`, sound and on disk.

        Raises:
            EngineError: the engine failed, or what it made does not pass the validators' own cheap checks.
            NotFound: the weights are not here.
            SpecMismatch: the weights come with another tokenizer or template than the run's.
            StoreError: the disk failed.
        """
        found = await asyncio.to_thread(self._left_behind, assignment)
        if found is not None:
            if self.found != found.claim.commitment:
                self.found = found.claim.commitment
                event("file found again", slot=assignment.slot, commitment=self.found)
            return found
        try:
            data = await self._generate(assignment)
            work = await asyncio.to_thread(self._sound, assignment, data)
        except (EngineError, Malformed) as error:
            self.loading.version = None  # the next try starts from a fresh load
            raise EngineError(str(error)) from error
        await asyncio.to_thread(self.intake.store.put, work.claim.commitment, data)
        self.found = work.claim.commitment
        return work

    def _left_behind(self, assignment: Assignment) -> Work | None:
        """The file that was made for this very assignment and not committed before a crash."""
        for name in self._uncommitted():
            try:
                data = self.intake.store.get(name)
                if data is None or self._claim(assignment, data).commitment != name:
                    continue
                work = self._sound(assignment, data)
            except Malformed as error:
                warn("a file of an earlier process is not usable", commitment=name, reason=error)
                self.intake.store.delete(name)
                continue
            except StoreError as error:
                warn("a file of an earlier process cannot be read", commitment=name, reason=error)
                continue
            return work
        return None

    def has_made(self, assignment: Assignment) -> bool:
        """Whether the file of `assignment` lies here already. Blocking."""
        return self._left_behind(assignment) is not None

    def _uncommitted(self) -> list[Digest]:
        """Files that the chain does not know, the latest first; the oldest of too many are deleted."""
        store = self.intake.store
        names = [name for name in store.list() if name not in self.member.record.submissions]
        names.sort(key=lambda name: store.path(name).stat().st_mtime, reverse=True)
        most = self.member.run.params.max_open + SPARE_FILES
        for name in names[most:]:
            store.delete(name)
        return names[:most]

    def _sound(self, assignment: Assignment, data: bytes) -> Work:
        """Raises: Malformed: the validators' own cheap checks would refuse this file."""
        work = Work(self._claim(assignment, data), data)
        if self.work.checks_itself:
            verdict = cheap(decoded_subject(self.member, self.tasks, work.claim, data))
            if isinstance(verdict, Rejected):
                raise Malformed(f"own rollouts fail check {verdict.check.name}, leaf {verdict.leaf}: {verdict.detail}")
        return work

    def _claim(self, assignment: Assignment, data: bytes) -> Claim:
        """What committing to `data` under `assignment` binds. Raises: Malformed."""
        spec = self.member.spec
        root = file_root(data, self.intake.max_file_bytes)
        units = file_units(decode_file(data, spec), spec)
        return claim_in(
            self.member, self.member.account, assignment.version, assignment.slot, root, units, assignment.beacon
        )

    async def _generate(self, assignment: Assignment) -> bytes:
        prompts = [self.tasks.item(item).prompt_ids for item in assignment.items]
        which: dict[str, Any] = {"version": assignment.version, "slot": assignment.slot}
        async with self.loading.holding(assignment.version):
            event("slot begun", **which, prompts=len(prompts), rollouts=self.member.spec.slot.rows)
            with Progress("generating", "tokens", self.member.clock, **which) as progress:
                samples = await self._samples(assignment.seed, prompts, progress)
        rollouts = self._rollouts(assignment, self.work.samples(samples))
        tokens = sum(len(rollout.output_ids) for rollout in rollouts)
        mean = sum(rollout.reward for rollout in rollouts) / len(rollouts)
        event("generated", **which, rollouts=len(rollouts), **progress.summary(tokens), reward=mean)
        return await asyncio.to_thread(encode_file, rollouts)

    async def _samples(self, seed: bytes, prompts: list[tuple[int, ...]], progress: Progress) -> list[Sample]:
        run = on_model_thread if self.at_once == 1 else asyncio.to_thread
        return await abandonable(run, self.engine.generate, seed, prompts, progress=progress)

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
