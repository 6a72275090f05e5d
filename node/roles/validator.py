"""The validator: holds every file, checks what it must, signs what it found, and has the chain act on it.

Two loops run side by side: `_watch` takes in files, exchanges signatures and settles; `_audit` runs the model. What is
signed is on disk first; what could not be decided is tried again. Only evidence slashes.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

from eth_account.signers.local import LocalAccount

from ledger.base import WHOLE_FILE, Digest, Fault, RunId, State
from ledger.errors import Unreachable
from ledger.messages import Have, NoFault, SignedMessage
from ledger.messages import sign as sign_message
from node.engines.base import Engine
from node.errors import EngineError, Malformed, NotFound
from node.log import event, warn
from node.peers.wire import MAX_BATCH, BatchAnswer, SignedBatch
from node.record import Submission
from node.roles.audit import Auditor
from node.roles.casebook import Case, Casebook
from node.roles.closing import Closer
from node.roles.directory import validators
from node.roles.exhibits import Exhibits
from node.roles.intake import Intake
from node.roles.member import Member
from node.verdicts import Accepted, Check, Rejected, Undecided, Verdict

GATHER_SECONDS = 3.0  # between two looks at what the other validators signed


@dataclass(slots=True)
class Validator:
    """One validator key in one run. `signer` signs messages; transactions go through the ledger."""

    member: Member
    signer: LocalAccount
    intake: Intake
    casebook: Casebook
    auditor: Auditor
    exhibits: Exhibits
    closer: Closer
    gathered: dict[Digest, float] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def engine(self) -> Engine:
        return self.auditor.engine

    async def run(self) -> None:
        """Validates until the run has ended and every submission is final."""
        async with self.member.following_weights():
            audit = asyncio.create_task(self._audit())
            try:
                await self._watch(audit)
            finally:
                audit.cancel()
                await asyncio.gather(audit, *self.tasks, return_exceptions=True)

    def _finished(self) -> bool:
        record = self.member.record
        ended = record.ended
        if ended is None or any(record.open_submissions()):
            return False
        return record.head.time > ended.time + self.member.run.params.windows.grace

    async def _watch(self, audit: asyncio.Task[None]) -> None:
        while not self._finished():
            if audit.done():
                audit.result()
            await self.member.sync()
            try:
                for submission in list(self.member.record.open_submissions()):
                    await self._attend(submission)
                await self.closer.close(self.acceptable)
            except Unreachable as error:
                warn("chain unreachable, trying again", reason=error)
            await self.member.wait()

    async def _attend(self, submission: Submission) -> None:
        """Everything about a submission that needs no model."""
        commitment = submission.made.commitment
        case = self.casebook.case(commitment)
        if not self.intake.holds(commitment) and not await self._seek(submission):
            self._withheld(submission, case)
            return
        if self.member.account not in case.haves:
            await self._confirm(submission)
        await self._gather(commitment)

    async def _seek(self, submission: Submission) -> bool:
        """Asks others for a file that was not handed over, now and then."""
        commitment = submission.made.commitment
        now = self.member.clock.monotonic()
        if now - self.gathered.get(commitment, now - GATHER_SECONDS) < GATHER_SECONDS:
            return False
        self.gathered[commitment] = now
        return await self.intake.fetch(commitment)

    def _withheld(self, submission: Submission, case: Case) -> None:
        """Signs that nobody could get the file, once its time is over."""
        if self.member.record.head.time < self.member.record.due(submission) or case.found(self.member.account):
            return
        verdict = Rejected(
            Check.WITHHELD, WHOLE_FILE, "no file", f"by {self.member.record.audit_time(submission)}", "withheld"
        )
        self._accuse(submission, verdict)

    async def _confirm(self, submission: Submission) -> None:
        """Signs that the file is here, whole and in order (checks 1 and 2)."""
        verdict = await self.auditor.cheap(submission)
        if isinstance(verdict, Undecided):
            return
        if isinstance(verdict, Rejected):
            self._accuse(submission, verdict)
            if verdict.check in {Check.SCHEMA, Check.ROOT}:
                return
        commitment = submission.made.commitment
        self._say(commitment, Have(commitment, self.member.record.head.time))

    def _say(self, commitment: Digest, message: Have | NoFault | Fault) -> None:
        """Signs `message`, writes it down, and tells the other validators."""
        signature = sign_message(self.signer, self.member.domain, message)
        signed = SignedMessage(type(message).__name__, message, signature)  # type: ignore[arg-type]
        self.casebook.add(commitment, [signed])
        self._background(self._tell(commitment, [signed]))

    def _accuse(self, submission: Submission, verdict: Rejected) -> None:
        """Writes the evidence of a rejection and signs the `Fault` that names it."""
        commitment = submission.made.commitment
        case = self.casebook.case(commitment)
        if any((f.leaf, f.check) == (verdict.leaf, verdict.check) for f in case.found(self.member.account)):
            return
        digest = self.exhibits.write(submission, verdict, self.engine.name)
        event("rejected", commitment=commitment, check=verdict.check.name, leaf=verdict.leaf,
              measured=verdict.measured, threshold=verdict.threshold, evidence=digest)  # fmt: skip
        self._say(commitment, Fault(self.member.run.id, commitment, verdict.leaf, verdict.check, digest))

    async def _tell(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        for url in validators(self.member.record, self.member.account).values():
            try:
                await self.member.peers.push_verdicts(url, commitment, messages)
            except (NotFound, Malformed) as error:
                warn("verdict not handed over: the other validator asks for it later", url=url, reason=error)

    async def _gather(self, commitment: Digest) -> None:
        """Asks the other validators what they signed about a submission that is taking long."""
        now = self.member.clock.monotonic()
        if now - self.gathered.setdefault(commitment, now) < GATHER_SECONDS:
            return
        self.gathered[commitment] = now
        for url in validators(self.member.record, self.member.account).values():
            try:
                self.casebook.add(commitment, await self.member.peers.verdicts(url, commitment))
            except (NotFound, Malformed):
                continue

    def _background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- The model's part

    async def _audit(self) -> None:
        while True:
            try:
                worked = [await self._audit_one(s) for s in list(self.member.record.open_submissions())]
            except (Unreachable, EngineError) as error:
                warn("audit interrupted, trying again", reason=error)
                worked = []
            if not any(worked):
                await self.member.wait()

    async def _audit_one(self, submission: Submission) -> bool:
        """Checks what this validator must check of `submission` and has not; whether there was anything."""
        commitment, me = submission.made.commitment, self.member.account
        case = self.casebook.case(commitment)
        draw = await self.auditor.draw(submission)
        if draw is None or not isinstance(await self.auditor.cheap(submission), Accepted):
            return False
        found = {fault.leaf for fault in case.found(me)}
        leaves = self._reported(submission) - found - case.clean(me)
        if me not in case.no_faults and not found:
            leaves |= set(draw.of(me))
        elif not leaves:
            return False
        verdict = await self.auditor.deep(submission, leaves)
        return self._conclude(submission, verdict, leaves)

    def _reported(self, submission: Submission) -> set[int]:
        """Leaves that others reported on chain: every validator looks at each."""
        rows = self.member.spec.slot.rows
        named = {report.leaf for report in submission.reports if Check(report.check).slashes}
        return set(range(rows)) if WHOLE_FILE in named else {leaf for leaf in named if leaf < rows}

    def _conclude(self, submission: Submission, verdict: Verdict, leaves: set[int]) -> bool:
        match verdict:
            case Rejected():
                self._accuse(submission, verdict)
            case Accepted():
                commitment = submission.made.commitment
                if self.member.account not in self.casebook.case(commitment).no_faults:
                    self._say(commitment, NoFault(commitment, tuple(sorted(leaves)), ()))
            case Undecided(reason):
                warn("undecided, trying again", commitment=submission.made.commitment, reason=reason)
                return False
        return True

    # --- Batches

    async def acceptable(self, submission: Submission) -> bool:
        """Whether this validator signs that `submission` is without fault (protocol, "A submission's life")."""
        commitment, params = submission.made.commitment, self.member.run.params
        case = self.casebook.case(commitment)
        if submission.state != State.SUBMITTED or any(case.found(who) for who in params.validators):
            return False
        draw = self.auditor.draws.get(commitment)
        if draw is None or not isinstance(await self.auditor.cheap(submission), Accepted):
            return False
        if sum(time < draw.block.time for time in case.have_times()) < params.quorum:
            return False
        mine = case.clean(self.member.account)
        return all(
            leaf in mine or all(leaf in case.clean(who) for who in chosen) for leaf, chosen in draw.auditors.items()
        )

    # --- Mailbox: what others ask of a validator

    @property
    def max_file_bytes(self) -> int:
        return self.intake.max_file_bytes

    async def submission(self, commitment: Digest) -> bytes:
        return await self.intake.get(commitment)

    async def take_submission(self, commitment: Digest, data: bytes) -> None:
        await self.intake.take(commitment, data)

    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]:
        await self.intake.known(commitment)
        return self.casebook.case(commitment).messages()

    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        await self.intake.known(commitment)
        self.casebook.add(commitment, messages)

    async def batch(self, commitment: Digest) -> SignedBatch:
        found = self.closer.batches.get(commitment)
        if found is None:
            raise NotFound("no quorum has signed a batch with this commitment here")
        return found

    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        if run != self.member.run.id or len(set(commitments)) != len(commitments) or len(commitments) > MAX_BATCH:
            raise Malformed("a batch names up to 64 different commitments of this run")
        known = [self.member.record.submissions.get(commitment) for commitment in commitments]
        good = [submission is not None and await self.acceptable(submission) for submission in known]
        refused = tuple(c for c, fine in zip(commitments, good, strict=True) if not fine)
        return BatchAnswer(None if refused else self.closer.sign(commitments), refused)

    async def evidence(self, digest: Digest) -> bytes:
        return await asyncio.to_thread(self.exhibits.read, digest)
