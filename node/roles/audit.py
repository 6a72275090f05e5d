"""Auditing a submission: what is drawn, what the cheap checks say of every leaf, what the model says of a drawn one."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from hashing.audit import audit_key, auditors, draw
from ledger.base import WHOLE_FILE, Address, Block, Digest, Submitted, Version
from node.checks.base import Subject, cheap, deep
from node.checks.evidence import Evidence, Versions, gather
from node.engines.base import Engine
from node.errors import EngineError, Malformed, NotFound, SpecMismatch, StoreError
from node.log import event, warn
from node.model_thread import on_model_thread
from node.progress import Progress
from node.record import Submission
from node.roles.intake import Intake
from node.roles.member import Member
from node.roles.subject import claim_of, decoded_subject
from node.rollouts.assignment import unit_list
from node.rollouts.file import split_file
from node.tasks.taskset import Taskset
from node.verdicts import Accepted, Check, Rejected, Undecided, Verdict, check_name


@dataclass(frozen=True, slots=True)
class Draw:
    """Which leaves of a submission are audited and by whom; anyone recomputes it from the chain and the file."""

    block: Block  # whose beacon drew: Haves count only if dated before it
    auditors: Mapping[int, tuple[Address, ...]]  # by leaf, ascending

    def of(self, who: Address) -> tuple[int, ...]:
        return tuple(leaf for leaf, chosen in self.auditors.items() if who in chosen)

    def is_answered(self, leaf: int, clean: Callable[[Address], frozenset[int]]) -> bool:
        """Whether both auditors of a drawn leaf found it clean; `clean` gives the leaves that one signed for."""
        return all(leaf in clean(who) for who in self.auditors[leaf])


@dataclass(slots=True)
class Auditor:
    """Checks files with this node's own engine, one at a time."""

    member: Member
    engine: Engine
    tasks: Taskset
    intake: Intake
    loaded: Version | None = None
    draws: dict[Digest, Draw] = field(default_factory=dict)
    cheap_verdicts: dict[Digest, Verdict] = field(default_factory=dict)
    judged: dict[Digest, tuple[int, ...]] = field(default_factory=dict)  # the leaves last replayed together
    clean: dict[Digest, frozenset[int]] = field(default_factory=dict)  # the leaves that the model found nothing in
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # one file in memory, however many strangers ask

    async def draw(self, submission: Submission) -> Draw | None:
        """The audit draw, or None while its beacon, or the file, is not there. Raises: Unreachable."""
        commitment = submission.made.commitment
        if commitment not in self.draws:
            found = await self._draw(submission)
            if found is None:
                return None
            self.draws[commitment] = found
        return self.draws[commitment]

    async def _draw(self, submission: Submission) -> Draw | None:
        ledger, time = self.member.ledger, self.member.record.audit_time(submission)
        if self.member.record.head.time < time:
            return None
        block = await ledger.block_at(time)
        beacon = None if block is None else await ledger.beacon(block.number)
        if block is None or beacon is None:
            return None
        async with self.reading:
            if submission.made.commitment in self.draws:
                return self.draws[submission.made.commitment]
            subject = await self.subject(submission)
            if subject is None:
                return None
            units = unit_list(subject.rollouts, subject.spec)
            del subject
        key = audit_key(beacon, submission.made.commitment)
        leaves = draw(key, units, self.member.spec.audit.leaves)
        validators = self.member.run.params.validators
        chosen = {leaf: tuple(Address(who) for who in auditors(key, leaf, validators)) for leaf in leaves}
        return Draw(block, chosen)

    async def subject(self, submission: Submission) -> Subject | None:
        """What the checks are given, or None where the file is not here or does not parse."""
        data = await asyncio.to_thread(self.intake.get, submission.made)
        if data is None:
            return None
        try:
            return await asyncio.to_thread(
                decoded_subject, self.member, self.tasks, claim_of(self.member, submission.made), data
            )
        except Malformed:
            return None

    async def cheap(self, submission: Submission) -> Verdict:
        """The checks that every validator makes of every leaf, the beacon's among them. Raises: Unreachable."""
        commitment = submission.made.commitment
        if commitment not in self.cheap_verdicts:
            verdict = await self._cheap(submission)
            if isinstance(verdict, Undecided):
                return verdict
            self.cheap_verdicts[commitment] = verdict
        return self.cheap_verdicts[commitment]

    async def _cheap(self, submission: Submission) -> Verdict:
        made = submission.made
        block = self.member.record.beacon_block(made.version, made.node, made.slot)
        beacon = None if block is None else await self.member.ledger.beacon(block)
        if beacon is None:
            return Undecided("the slot's beacon is not known here yet")
        if beacon != made.beacon:
            return Rejected(
                Check.WITHHELD, WHOLE_FILE, made.beacon.hex(), beacon.hex(), "the beacon is not the chain's"
            )
        async with self.reading:
            if made.commitment in self.cheap_verdicts:
                return self.cheap_verdicts[made.commitment]
            return await self._cheap_of_file(made)

    async def _cheap_of_file(self, made: Submitted) -> Verdict:
        data = await asyncio.to_thread(self.intake.get, made)
        if data is None:
            return Undecided("the file is not here")
        try:
            subject = await asyncio.to_thread(
                decoded_subject, self.member, self.tasks, claim_of(self.member, made), data
            )
        except Malformed as error:
            return Rejected(Check.SCHEMA, WHOLE_FILE, "malformed", "protocol 1", str(error)[:300])
        return await asyncio.to_thread(cheap, subject)

    async def deep(self, submission: Submission, leaves: Iterable[int]) -> Verdict:
        """The checks that need the model, on `leaves`: the first rejection, else what was measured.

        Raises:
            EngineError: nothing was decided.
        """
        wanted = sorted(leaves)
        subject = await self.subject(submission)
        if subject is None:
            return Undecided("the file is not here")
        if not wanted:
            return Accepted()
        try:
            await self._load(submission.made.version)
        except (NotFound, SpecMismatch) as error:
            return Undecided(str(error))
        self.judged[submission.made.commitment] = tuple(wanted)
        rows = [subject.rollouts[leaf] for leaf in wanted]
        made = submission.made
        which: dict[str, Any] = {"version": made.version, "slot": made.slot, "commitment": made.commitment}
        try:
            with Progress("auditing", "rollouts", self.member.clock, **which) as progress:
                replays = await on_model_thread(self.engine.replay, subject.seed, rows, progress)
        except EngineError:
            self.loaded = None  # a fresh start for the next submission
            raise
        verdict = await asyncio.to_thread(deep, subject, dict(zip(wanted, replays, strict=True)))
        if isinstance(verdict, Rejected) and not await self._weights_intact(made.version):
            return Undecided("the weights that it was replayed with are damaged here")
        if isinstance(verdict, Accepted):
            self.clean[submission.made.commitment] = self.checked(submission.made.commitment).union(wanted)
        tokens = sum(len(row.output_ids) for row in rows)
        event("audited", **which, node=made.node, rollouts=len(wanted),
              **_figures(verdict) | progress.summary(tokens, "tokens"))  # fmt: skip
        return verdict

    async def _weights_intact(self, version: Version) -> bool:
        """Whether the weights here still hash to what is published: no fault is found with others.

        Those that do not are removed and fetched again, and the engine loads anew. Raises: StoreError.
        """
        loaded, self.loaded = self.loaded, None  # also where the disk cannot be read
        root = self.member.record.root(version)
        if root is None or not await asyncio.to_thread(self.member.checkpoints.recheck, root):
            warn("weights changed on this disk: no fault is found with them, they are fetched again", version=version)
            return False
        self.loaded = loaded
        return True

    def evidence(self, submission: Submission, rejected: Rejected, engine: str) -> bytes:
        """Canonical JSON with which anyone can look at a rejection again. Blocking.

        Raises:
            StoreError: the file that was judged is not here any more: nothing may be signed without it.
        """
        made, spec = submission.made, self.member.spec
        block = self.member.record.beacon_block(made.version, made.node, made.slot) or 0
        versions = Versions(spec.model.manifest_root, engine, metadata.version("intellect-node"))
        data = self.intake.get(made)
        if data is None and rejected.check != Check.WITHHELD:
            raise StoreError(f"{self.intake.store.path(made.commitment)}: gone before its evidence was written")
        if data is None:
            return Evidence(claim_of(self.member, made), block, spec.slot.rows, (), rejected, versions).encode()
        preimages = split_file(data, self.intake.max_file_bytes)
        judged = self.judged.get(made.commitment, tuple(range(len(preimages))))
        return gather(claim_of(self.member, made), rejected, preimages, judged, block, versions).encode()

    async def _load(self, version: Version) -> None:
        """Swaps in the weights of `version` where they are here: waiting for them would hold up every other audit."""
        if self.loaded == version:
            return
        if await asyncio.to_thread(self.member.versions.held, version) is None:
            raise NotFound(f"the weights of version {version} are not here yet")
        folder = await self.member.weights.folder(version)
        self.loaded = None
        with Progress("loading weights", "", self.member.clock, version=version) as progress:
            await on_model_thread(self.engine.load, folder)
        self.loaded = version
        event("weights loaded", version=version, seconds=progress.seconds, engine=self.engine.name)

    def checked(self, commitment: Digest) -> frozenset[int]:
        """The leaves that this process has looked at and found nothing in."""
        return self.clean.get(commitment, frozenset())

    def known(self) -> set[Digest]:
        """The submissions about which something is remembered."""
        return {*self.draws, *self.cheap_verdicts, *self.judged, *self.clean}

    def forget(self, commitment: Digest) -> None:
        """Drops what was found about a submission that is final."""
        self.draws.pop(commitment, None)
        self.cheap_verdicts.pop(commitment, None)
        self.judged.pop(commitment, None)
        self.clean.pop(commitment, None)


def _figures(verdict: Verdict) -> dict[str, object]:
    match verdict:
        case Accepted(measured):
            return {"verdict": "accepted", **dict(measured)}
        case Rejected(check, leaf):  # its figures stand in the line of the accusation, with the evidence
            return {"verdict": "rejected", "check": check_name(check), "leaf": leaf}
        case Undecided(reason):
            return {"verdict": "undecided", "reason": reason}
