"""Bringing submissions to their end on chain: settling good ones, reporting faulty ones, concluding what is due.

What was sent waits, longer each time, for the chain to show that it counted: a transaction that changes nothing costs
gas. Each part fails by itself: a case file that cannot be read keeps nothing else from its end.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ledger.base import WHOLE_FILE, Address, Digest, Fault, State, ascending
from ledger.errors import Reverted, Unconfirmed, Unreachable
from ledger.messages import SignedMessage
from node.errors import StoreError
from node.log import event, warn
from node.peers.wire import MAX_BATCH
from node.record import Submission
from node.roles.batching import Acceptable, Batcher
from node.roles.casebook import Casebook
from node.roles.chronicle import named
from node.roles.member import Member
from node.roles.pauses import Pauses
from node.roles.turns import TURN_SECONDS, is_turn
from node.verdicts import Check

Sending = Callable[[], Awaitable[object]]


class _Act(NamedTuple):
    what: str
    commitment: Digest
    leaf: int = WHOLE_FILE


@dataclass(slots=True)
class Closer:
    """Of one validator."""

    member: Member
    casebook: Casebook
    batcher: Batcher
    tried: Pauses[_Act] = field(init=False)  # by the machine's clock: blocks' times may lie
    unread: Pauses[Digest] = field(init=False)  # of submissions whose case the disk refuses
    done: set[_Act] = field(default_factory=set)  # reports that the chain took, whether or not they counted

    def __post_init__(self) -> None:
        self.tried = Pauses(self.member.clock, TURN_SECONDS)
        self.unread = Pauses(self.member.clock)

    async def close(self, acceptable: Acceptable) -> None:
        """One round: whatever can be brought forward now is."""
        for submission in self.member.record.open_submissions():
            await self._report_guarded(submission)
        await self.batcher.propose(acceptable)
        await self._settle()
        await self._conclude()

    def known(self) -> set[Digest]:
        """The submissions about which something is remembered."""
        acts = (*self.tried.resting, *self.done)
        return {*self.batcher.batches, *self.unread.resting, *(act.commitment for act in acts)}

    def forget(self, commitment: Digest) -> None:
        """Drops what concerns a submission that is final."""
        self.batcher.forget(commitment)
        self.unread.forget(commitment)
        self.done = {act for act in self.done if act.commitment != commitment}
        for act in [act for act in self.tried.resting if act.commitment == commitment]:
            self.tried.forget(act)

    # --- Good ones

    async def _settle(self) -> None:
        record = self.member.record
        due = [
            s.made.commitment
            for s in record.open_submissions()
            if s.state == State.SUBMITTED
            and s.made.commitment in self.batcher.batches
            and is_turn(self.member, s.made.commitment, record.due(s))
        ]
        batches = {self.batcher.batches[commitment]: commitment for commitment in due}
        for batch, commitment in batches.items():
            settle = partial(self.member.ledger.settle, batch.run, batch.commitments, batch.signatures)
            await self._send(_Act("settle", commitment), settle)

    # --- Faulty ones

    async def _report_guarded(self, submission: Submission) -> None:
        commitment = submission.made.commitment
        if self.unread.rests(commitment):
            return
        try:
            await self._report(submission)
        except StoreError as error:
            self.unread.note(commitment, done=False)
            warn("reporting interrupted, trying again", **named(self.member.record, commitment), reason=error)
        else:
            self.unread.forget(commitment)

    async def _report(self, submission: Submission) -> None:
        case = await self.casebook.case(submission.made.commitment)
        for signed in list(case.faults.get(self.member.account, ())):
            if isinstance(signed.message, Fault):
                await self._report_one(submission, signed, signed.message)

    async def _report_one(self, submission: Submission, signed: SignedMessage, fault: Fault) -> None:
        if not Check(fault.check).slashes:
            if submission.state == State.SUBMITTED:
                await self._report_together(submission, fault)
            return
        act = _Act("report", fault.commitment, fault.leaf)
        told = any((r.validator, r.leaf) == (self.member.account, fault.leaf) for r in submission.reports)
        if told or act in self.done or submission.conviction is not None:
            return
        if await self._send(act, lambda: self.member.ledger.report(fault.run, [fault], [signed.signature])):
            self.done.add(act)

    async def _report_together(self, submission: Submission, fault: Fault) -> None:
        """A finding that costs no stake goes to the chain with a quorum's signatures at once."""
        agreed: dict[Address, tuple[Fault, bytes]] = {}
        for who, said in (await self.casebook.case(fault.commitment)).faults.items():
            for signed in said:
                other = signed.message
                if isinstance(other, Fault) and (other.leaf, other.check) == (fault.leaf, fault.check):
                    agreed[who] = (other, signed.signature)
        quorum = self.member.run.params.quorum
        if len(agreed) < quorum or not is_turn(self.member, fault.commitment, submission.made.block.time):
            return
        order = ascending(agreed)[:quorum]
        faults, signatures = [agreed[who][0] for who in order], [agreed[who][1] for who in order]
        act = _Act("report", fault.commitment, fault.leaf)
        await self._send(act, lambda: self.member.ledger.report(fault.run, faults, signatures))

    # --- What is due

    async def _conclude(self) -> None:
        due = [s.made.commitment for s in self.member.record.open_submissions() if self._is_due(s)]
        if due:
            listed = due[:MAX_BATCH]
            await self._send(_Act("conclude", due[0]), lambda: self.member.ledger.conclude(self.member.run.id, listed))

    def _is_due(self, submission: Submission) -> bool:
        since = self._deadline(submission)
        return since < self.member.record.head.time and is_turn(self.member, submission.made.commitment, since)

    def _deadline(self, submission: Submission) -> int:
        """When `conclude` has something to do, if nothing else happens first."""
        windows, record = self.member.run.params.windows, self.member.record
        if submission.conviction is not None:
            return submission.conviction.executable_at
        if submission.state == State.FAULTED:
            latest = max(report.block.time for report in submission.reports)
            return max(latest, record.due(submission)) + windows.confirm
        return submission.made.block.time + windows.settle_by

    async def _send(self, act: _Act, sending: Sending) -> bool:
        """Sends a transaction, unless the same was sent just now; whether the chain took it."""
        if self.tried.rests(act):
            return False
        try:
            await sending()
        except Unreachable as error:
            self.member.chronicle.lost(error)
            return False
        except (Reverted, Unconfirmed) as error:
            warn(f"{act.what} not taken", **named(self.member.record, act.commitment), reason=error)
            return False
        finally:
            self.tried.note(act, done=False)  # once it has counted, the record says so and it is forgotten
        event(f"{act.what} sent", **named(self.member.record, act.commitment))
        await self.member.sync()  # the next look knows of it, whatever the other loops wait for
        return True
