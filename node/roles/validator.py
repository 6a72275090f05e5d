"""The validator: holds every file, checks what it must, signs what it found, and has the chain act on it.

Loops run side by side, so that none waits for another: `_watch` attends to every open submission, `_close` settles and
reports, `_listen` takes in what the others say, the `Examiner` runs the model. What is signed is on disk first; what
could not be decided is tried again. Only evidence slashes.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from ledger.base import WHOLE_FILE, Address, Digest
from ledger.messages import Have
from node.errors import Malformed, NotFound
from node.log import warn
from node.p2p.announcements import Verdicts
from node.peers.wire import parse_verdicts
from node.record import Submission
from node.roles.acceptance import Acceptance
from node.roles.audit import Auditor
from node.roles.casebook import Case, Casebook
from node.roles.closing import Closer
from node.roles.directory import validators
from node.roles.examiner import Examiner, Guard
from node.roles.hearsay import Hearsay
from node.roles.intake import Intake, is_past
from node.roles.member import Member
from node.roles.pauses import Pauses, put_off
from node.roles.witness import Witness
from node.verdicts import Check, Rejected, Undecided

INQUIRY_SECONDS = 3.0  # between two questions after a missing file, or after what the others signed
FETCHES_OF_NODE = 4  # at once, of one worker's files: one that withholds many must not take every connection
PRUNE_SECONDS = 600.0


@dataclass(slots=True)
class _Presence:
    """Since when, in block time, this validator has been there without a gap."""

    since: int | None = None
    seen: int = 0

    def note(self, now: int, longest_gap: int) -> None:
        if self.since is None or not 0 <= now - self.seen <= longest_gap:  # a time that went back had been a lie
            self.since = now
        self.seen = now


@dataclass(slots=True)
class Validator:
    """One validator key in one run, put together from its parts by `node.runtime`."""

    member: Member
    intake: Intake
    casebook: Casebook
    auditor: Auditor
    witness: Witness
    examiner: Examiner
    closer: Closer
    acceptable: Acceptance
    guard: Guard
    presence: _Presence = field(default_factory=_Presence)
    inquired: dict[Digest, float] = field(default_factory=dict)  # when, monotonic
    inquiries: dict[Digest, asyncio.Task[None]] = field(default_factory=dict)
    fetches: dict[Address, asyncio.Semaphore] = field(default_factory=dict)  # by the node whose file it is
    pruned: float = float("-inf")
    pauses: Pauses[Digest] = field(init=False)
    reluctance: Pauses[Digest] = field(init=False)  # of what failed when it was to be signed for

    def __post_init__(self) -> None:
        self.pauses = Pauses(self.member.clock)
        self.reluctance = Pauses(self.member.clock)

    async def run(self) -> None:
        """Validates until the run has ended and every submission is final."""
        await self.member.synced()
        async with self.member.weights.following():
            self.member.hearsay = hearsay = Hearsay(self.casebook.validators)
            work = (self._watch(), self._close(), self._listen(hearsay), self.examiner.run())
            loops = [asyncio.create_task(loop) for loop in work]
            try:
                done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
                for loop in done:
                    loop.result()
            finally:
                await _cancelled(*loops, *self.inquiries.values())
                await self.witness.close()

    async def _watch(self) -> None:
        while not self.member.record.is_over:
            await self.member.sync()
            self.presence.note(self.member.record.head.time, self.member.run.params.windows.available)
            open_submissions = self.member.record.open_submissions()
            self.member.versions.wanted = {submission.made.version for submission in open_submissions}
            for submission in open_submissions:
                await self._attend_guarded(submission)
            self._tidy()
            await self._prune()
            await self.member.wait()

    async def _close(self) -> None:
        await self.member.finish_earlier()  # nothing is sent before; all else goes on meanwhile
        while True:
            await self.closer.close(self._accepts_guarded)
            await self.member.wait()

    async def _accepts_guarded(self, submission: Submission) -> bool:
        commitment = submission.made.commitment
        if self.reluctance.rests(commitment):
            return False
        accepts = await self.guard("accepting", commitment, self.acceptable(submission))
        self.reluctance.note(commitment, done=accepts is not None)
        return bool(accepts)

    async def _attend_guarded(self, submission: Submission) -> None:
        commitment = submission.made.commitment
        if not self.pauses.rests(commitment):
            done = await self.guard("attending", commitment, self.attend(submission))
            self.pauses.note(commitment, done=done is not None)

    async def attend(self, submission: Submission) -> bool:
        """Everything about a submission that needs neither a model nor another node's answer."""
        commitment = submission.made.commitment
        case = await self.casebook.case(commitment)
        held = self.intake.holds(commitment)
        self._inquire(commitment, held)
        if not held:
            await self._withheld(submission, case)
        elif self.member.account not in case.haves:
            await self._confirm(submission)
        return True

    async def _withheld(self, submission: Submission, case: Case) -> None:
        """Signs that nobody could get the file, if this validator was there all the time that it could be got."""
        record, since = self.member.record, self.presence.since
        if self.member.account in case.haves:
            return  # it was here: that it is lost is this disk's fault
        if record.head.time < record.due(submission) or since is None or since > submission.made.block.time:
            return
        audit_time = record.audit_time(submission)
        if sum(time < audit_time for time in case.have_times()) >= self.member.run.params.quorum:
            return  # a quorum holds it: that it is missing here is no fault of the node's
        await self.witness.accuse(
            submission, Rejected(Check.WITHHELD, WHOLE_FILE, "no file", f"by {audit_time}", "withheld")
        )

    async def _confirm(self, submission: Submission) -> None:
        """Signs that the file is here, whole and in order (checks 1 and 2), and what is wrong with it otherwise."""
        verdict = await self.auditor.cheap(submission)
        if isinstance(verdict, Undecided):
            return
        if isinstance(verdict, Rejected):
            await self.witness.accuse(submission, verdict)
            if verdict.check in {Check.SCHEMA, Check.ROOT}:
                return
        await self.witness.say(Have(submission.made.commitment, self.member.record.head.time))

    # --- Asking others

    def _inquire(self, commitment: Digest, held: bool) -> None:
        """Asks, now and then and in the background, for a missing file and for what the other validators signed."""
        now = self.member.clock.monotonic()
        last = self.inquired.setdefault(commitment, now if held else now - INQUIRY_SECONDS)
        if now - last < INQUIRY_SECONDS or commitment in self.inquiries:
            return
        self.inquired[commitment] = now
        task = asyncio.create_task(self._ask_guarded(commitment, held))
        self.inquiries[commitment] = task
        task.add_done_callback(lambda _: self.inquiries.pop(commitment, None))

    async def _ask_guarded(self, commitment: Digest, held: bool) -> None:
        await self.guard("inquiry", commitment, self._ask(commitment, held))

    async def _ask(self, commitment: Digest, held: bool) -> bool:
        urls = validators(self.member.record, self.member.account).values()
        file = () if held else (self._fetch(commitment),)
        await asyncio.gather(*file, *(self._gather(url, commitment) for url in urls))
        return True

    async def _fetch(self, commitment: Digest) -> None:
        node = self.member.record.submissions[commitment].made.node
        async with self.fetches.setdefault(node, asyncio.Semaphore(FETCHES_OF_NODE)):
            if not self.member.record.is_final(commitment) and not await self.intake.fetch(commitment):
                warn("nobody hands over a file, trying again", commitment=commitment)

    async def _gather(self, url: str, commitment: Digest) -> None:
        try:
            said = await self.member.peers.verdicts(url, commitment)
        except (NotFound, Malformed):
            return
        if not self.member.record.is_final(commitment):
            await self.casebook.add(commitment, said, url)

    async def _listen(self, hearsay: Hearsay) -> None:
        """Takes in what the other validators say by gossip."""
        while True:
            who, said = await hearsay.next()
            if said.commitment in self.member.record.unfinished:
                await self.guard("gossip", said.commitment, self._hear(who, said))

    async def _hear(self, who: Address, said: Verdicts) -> bool:
        with suppress(Malformed):
            await self.casebook.add(said.commitment, parse_verdicts(said.messages), who)
        return True

    # --- What is over

    def _tidy(self) -> None:
        """Drops from memory what concerns submissions that have become final."""
        known = {*self.casebook.cases, *self.auditor.known(), *self.examiner.known(), *self.closer.known()}
        known |= {*self.inquired, *self.pauses.resting, *self.reluctance.resting}
        for commitment in filter(self.member.record.is_final, known):
            self.pauses.forget(commitment)
            self.reluctance.forget(commitment)
            self.casebook.forget(commitment)
            self.auditor.forget(commitment)
            self.examiner.forget(commitment)
            self.closer.forget(commitment)
            self.inquired.pop(commitment, None)

    async def _prune(self) -> None:
        """Deletes, now and then, files, cases and evidence that no window can need any more."""
        now = self.member.clock.monotonic()
        if now - self.pruned >= PRUNE_SECONDS:
            await self.intake.prune()
            await asyncio.to_thread(self._prune_cases)
            self.pruned = now

    def _prune_cases(self) -> None:
        record = self.member.record
        for commitment in self.casebook.on_disk():
            submission = record.submissions.get(commitment)
            if submission is not None and is_past(record, submission):
                with put_off("an old case not deleted"):
                    self.witness.exhibits.delete_named(self.casebook.stored(commitment))
                    self.casebook.delete(commitment)


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
