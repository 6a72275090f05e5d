"""Bringing submissions to their end on chain: batches of good ones, reports of faulty ones, and what is due.

Validators take turns by the commitment's hash; whoever's turn passes unused, the next one acts. Two that act at once
cost gas, never money: the contract skips what is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest, Fault, State
from ledger.errors import InvalidSignature, Reverted, Unconfirmed
from ledger.messages import Batch, SignedMessage, recover
from ledger.messages import sign as sign_message
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.peers.wire import MAX_BATCH, SignedBatch
from node.record import Submission
from node.roles.casebook import Casebook
from node.roles.directory import validators
from node.roles.member import Member
from node.verdicts import Check

TURN_SECONDS = 6  # of block time: how long a validator's turn lasts

Acceptable = Callable[[Submission], Awaitable[bool]]


@dataclass(slots=True)
class Closer:
    """Of one validator. `batches` are the quorum's signatures that it collected, by commitment."""

    member: Member
    signer: LocalAccount
    casebook: Casebook
    batches: dict[Digest, SignedBatch] = field(default_factory=dict)

    async def close(self, acceptable: Acceptable) -> None:
        """One round: whatever can be brought forward now is. Raises: Unreachable."""
        for submission in list(self.member.record.open_submissions()):
            await self._report(submission)
        await self._propose(acceptable)
        await self._settle()
        await self._conclude()

    def _turn(self, commitment: Digest, since: int) -> bool:
        """Whether it is this validator's turn, `since` being when acting became possible."""
        order = self.member.run.params.validators
        rank = (order.index(self.member.account) - int.from_bytes(commitment[:4])) % len(order)
        return self.member.record.head.time >= since + rank * TURN_SECONDS

    def sign(self, commitments: Sequence[Digest]) -> bytes:
        return sign_message(self.signer, self.member.domain, Batch(self.member.run.id, tuple(commitments)))

    # --- Good ones

    async def _propose(self, acceptable: Acceptable) -> None:
        record = self.member.record
        ready = [
            s.made.commitment
            for s in record.open_submissions()
            if s.made.commitment not in self.batches
            and await acceptable(s)
            and self._turn(s.made.commitment, record.audit_time(s))
        ]
        if ready:
            await self._collect(ready[:MAX_BATCH])

    async def _collect(self, commitments: list[Digest]) -> None:
        """Asks the others to sign; what one of them refuses waits for another round."""
        for _ in range(2):
            signatures, refused = await self._ask(commitments)
            if len(signatures) >= self.member.run.params.quorum:
                self._keep(commitments, signatures)
                return
            commitments = [commitment for commitment in commitments if commitment not in refused]
            if not commitments or not refused:
                return

    async def _ask(self, commitments: list[Digest]) -> tuple[dict[Address, bytes], set[Digest]]:
        signatures = {self.member.account: self.sign(commitments)}
        refused: set[Digest] = set()
        others = validators(self.member.record, self.member.account)
        answers = await asyncio.gather(*(self._ask_one(who, url, commitments) for who, url in others.items()))
        for who, signature, refusals in answers:
            refused |= refusals
            if signature is not None:
                signatures[who] = signature
        return signatures, refused

    async def _ask_one(
        self, who: Address, url: str, commitments: list[Digest]
    ) -> tuple[Address, bytes | None, set[Digest]]:
        batch = Batch(self.member.run.id, tuple(commitments))
        try:
            answer = await self.member.peers.propose(url, self.member.run.id, commitments)
            if answer.signature and recover(self.member.domain, batch, answer.signature) != who:
                raise Malformed("signed by another key")
        except (NotFound, Malformed, InvalidSignature) as error:
            warn("no signature for a batch", url=url, reason=error)
            return who, None, set()
        return who, answer.signature, set(answer.refused)

    def _keep(self, commitments: list[Digest], signatures: dict[Address, bytes]) -> None:
        order = sorted(signatures, key=lambda who: int(who, 16))[: self.member.run.params.quorum]
        batch = SignedBatch(self.member.run.id, tuple(commitments), tuple(signatures[who] for who in order))
        self.batches.update(dict.fromkeys(commitments, batch))
        event("batch signed", submissions=len(commitments), signatures=len(order))

    async def _settle(self) -> None:
        record = self.member.record
        due = [
            s.made.commitment
            for s in record.open_submissions()
            if s.state == State.SUBMITTED and s.made.commitment in self.batches and record.head.time >= record.due(s)
        ]
        for batch in {id(self.batches[c]): self.batches[c] for c in due}.values():
            await self._send("settle", self.member.ledger.settle(batch.run, batch.commitments, batch.signatures))

    # --- Faulty ones

    async def _report(self, submission: Submission) -> None:
        case = self.casebook.case(submission.made.commitment)
        mine = [m for m in case.faults.get(self.member.account, []) if isinstance(m.message, Fault)]
        for signed in mine:
            if isinstance(signed.message, Fault):
                await self._report_one(submission, signed, signed.message)

    async def _report_one(self, submission: Submission, signed: SignedMessage, fault: Fault) -> None:
        if Check(fault.check).slashes:
            told = any((r.validator, r.leaf) == (self.member.account, fault.leaf) for r in submission.reports)
            if not told:
                await self._send("report", self.member.ledger.report(fault.run, [fault], [signed.signature]))
        elif submission.state == State.SUBMITTED:
            await self._report_together(submission, fault)

    async def _report_together(self, submission: Submission, fault: Fault) -> None:
        """A finding that costs no stake goes to the chain with a quorum's signatures at once."""
        agreed: dict[Address, tuple[Fault, bytes]] = {}
        for who, said in self.casebook.case(fault.commitment).faults.items():
            for signed in said:
                other = signed.message
                if isinstance(other, Fault) and (other.leaf, other.check) == (fault.leaf, fault.check):
                    agreed[who] = (other, signed.signature)
        quorum = self.member.run.params.quorum
        if len(agreed) < quorum or not self._turn(fault.commitment, submission.made.block.time):
            return
        order = sorted(agreed, key=lambda who: int(who, 16))[:quorum]
        faults, signatures = [agreed[who][0] for who in order], [agreed[who][1] for who in order]
        await self._send("report", self.member.ledger.report(fault.run, faults, signatures))

    # --- What is due

    async def _conclude(self) -> None:
        due = [s.made.commitment for s in self.member.record.open_submissions() if self._is_due(s)]
        if due:
            await self._send("conclude", self.member.ledger.conclude(self.member.run.id, due[:MAX_BATCH]))

    def _is_due(self, submission: Submission) -> bool:
        since = self._deadline(submission)
        return since < self.member.record.head.time and self._turn(submission.made.commitment, since)

    def _deadline(self, submission: Submission) -> int:
        """When `conclude` has something to do, if nothing else happens first."""
        windows = self.member.run.params.windows
        if submission.conviction is not None:
            return submission.conviction.executable_at
        if submission.state == State.FAULTED:
            return max(report.block.time for report in submission.reports) + windows.confirm
        return submission.made.block.time + windows.settle_by

    async def _send(self, what: str, sending: Awaitable[object]) -> None:
        try:
            await sending
            event(f"{what} sent")
        except (Reverted, Unconfirmed) as error:
            warn(f"{what} not taken", reason=error)
