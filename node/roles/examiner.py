"""The model's part in validating: which leaves this validator must look at, one submission after the other.

A submission that cannot be decided waits for its next turn, longer each time; the others do not wait for it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ledger.base import WHOLE_FILE, Digest, State
from ledger.messages import NoFault
from node.log import warn
from node.record import Submission
from node.roles.audit import Auditor, Draw
from node.roles.casebook import MAX_FAULTS, Case, Casebook
from node.roles.member import Member
from node.roles.pauses import Pauses
from node.roles.witness import Witness
from node.verdicts import Accepted, Check, Rejected, Undecided, Verdict

Guard = Callable[[str, Digest, Awaitable[bool | None]], Awaitable[bool | None]]
"""Awaits what one submission needs, by name; None instead of an error, so that the other submissions go on."""


@dataclass(slots=True)
class Examiner:
    """Of one validator."""

    member: Member
    casebook: Casebook
    auditor: Auditor
    witness: Witness
    guard: Guard
    answered: set[Digest] = field(default_factory=set)  # whose whole file was reported, and looked at
    pauses: Pauses[Digest] = field(init=False)

    def __post_init__(self) -> None:
        self.pauses = Pauses(self.member.clock)

    async def run(self) -> None:
        """Goes round the open submissions, the oldest first, until it is cancelled."""
        while True:
            worked = [await self._turn(s.made.commitment) for s in self.member.record.open_submissions()]
            if not any(worked):
                await self.member.wait()

    def known(self) -> set[Digest]:
        """The submissions about which something is remembered."""
        return {*self.answered, *self.pauses.resting}

    def forget(self, commitment: Digest) -> None:
        self.answered.discard(commitment)
        self.pauses.forget(commitment)

    async def _turn(self, commitment: Digest) -> bool:
        """One submission's turn; whether there was anything to do."""
        submission = self.member.record.submissions[commitment]
        if submission.state.final or self.pauses.rests(commitment):
            return False
        worked = await self.guard("auditing", commitment, self.examine(submission))
        self.pauses.note(commitment, done=worked is not None)
        return bool(worked)

    async def examine(self, submission: Submission) -> bool | None:
        """Checks what this validator must check of `submission` and has not.

        Whether there was anything; None where it could not be decided.

        Raises: EngineError, StoreError, Unreachable: nothing was decided.
        """
        case = await self.casebook.case(submission.made.commitment)
        draw = await self.auditor.draw(submission)
        if draw is None or not isinstance(await self.auditor.cheap(submission), Accepted):
            return False
        if submission.conviction is not None:
            return False
        drawn = self._drawn(case, draw)
        leaves = set(drawn or ()) | self._orphaned(submission, case, draw) | self._reported(submission, case)
        if drawn is None and not leaves:
            return False
        whole = WHOLE_FILE in leaves
        leaves = self._rows if whole else leaves
        verdict = await self.auditor.deep(submission, leaves)
        if whole and not isinstance(verdict, Undecided):
            self.answered.add(submission.made.commitment)
        return await self._conclude(submission, verdict, leaves, first=drawn is not None)

    def _drawn(self, case: Case, draw: Draw) -> tuple[int, ...] | None:
        """The leaves that the draw gave this validator; None once it has answered for them."""
        me = self.member.account
        return None if me in case.no_faults or case.found(me) else draw.of(me)

    def _orphaned(self, submission: Submission, case: Case, draw: Draw) -> set[int]:
        """Drawn leaves whose auditors did not answer in their time: whoever is to sign looks at them itself."""
        late = self.member.record.head.time >= self.member.record.due(submission)
        if not late or submission.state != State.SUBMITTED or case.found(self.member.account):
            return set()
        return {leaf for leaf in draw.auditors if not draw.is_answered(leaf, case.clean)} - self._mine(case)

    def _reported(self, submission: Submission, case: Case) -> set[int]:
        """Leaves that others found at fault, on chain or so that a quorum can agree: each is looked at once."""
        found = {fault.leaf for fault in case.found(self.member.account)}
        if len(found) >= MAX_FAULTS:
            return set()
        named = {report.leaf for report in submission.reports if Check(report.check).slashes} | self._to_agree_on(case)
        answered = {WHOLE_FILE} if submission.made.commitment in self.answered else set()
        return (named & (self._rows | {WHOLE_FILE})) - found - self._mine(case) - answered

    def _to_agree_on(self, case: Case) -> set[int]:
        """One leaf of each other validator that found wrong log-probabilities.

        Each auditor finds them in the first of its own leaves, which with many auditors are different ones, and the
        chain is told only when a quorum names the same.
        """
        others = (case.found(who) for who in case.faults if who != self.member.account)
        wrong = ([fault.leaf for fault in said if fault.check == Check.LOGPROBS][:1] for said in others)
        return {leaf for leaves in wrong for leaf in leaves} & self._rows

    def _mine(self, case: Case) -> frozenset[int]:
        """The leaves that this validator has found clean, signed for or not."""
        return case.clean(self.member.account) | self.auditor.checked(case.commitment)

    @property
    def _rows(self) -> set[int]:
        return set(range(self.member.spec.slot.rows))

    async def _conclude(self, submission: Submission, verdict: Verdict, leaves: set[int], first: bool) -> bool | None:
        commitment = submission.made.commitment
        match verdict:
            case Rejected():
                await self.witness.accuse(submission, verdict)
            case Accepted() if first:
                await self.witness.say(NoFault(commitment, tuple(sorted(leaves)), ()))
            case Undecided(reason):
                warn("undecided, trying again", commitment=commitment, reason=reason)
                return None
        return True
