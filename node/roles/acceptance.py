"""When a validator signs that a submission is without fault (protocol, "A submission's life")."""

from dataclasses import dataclass

from ledger.base import Address, State
from node.record import Submission
from node.roles.audit import Auditor, Draw
from node.roles.casebook import Case, Casebook
from node.roles.member import Member
from node.verdicts import Accepted


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of one validator. Another's `Fault` alone is no reason to refuse: on chain it freezes the submission, and off
    chain a single validator could otherwise hold up everything."""

    member: Member
    casebook: Casebook
    auditor: Auditor

    async def __call__(self, submission: Submission) -> bool:
        """Whether this validator signs a batch with `submission` now. Raises: Unreachable."""
        case = await self.casebook.case(submission.made.commitment)
        held = self.auditor.intake.holds(submission.made.commitment)
        if not held or submission.state != State.SUBMITTED or case.found(self.member.account):
            return False
        draw = await self.auditor.draw(submission)
        if draw is None or not isinstance(await self.auditor.cheap(submission), Accepted):
            return False
        return self._is_available(case, draw) and self._is_clean(case, draw, self.member.account)

    def _is_available(self, case: Case, draw: Draw) -> bool:
        """Whether a quorum held the file before anyone could know what would be audited."""
        return sum(time < draw.block.time for time in case.have_times()) >= self.member.run.params.quorum

    def _is_clean(self, case: Case, draw: Draw, me: Address) -> bool:
        """Whether both auditors of every drawn leaf, or this validator, looked at it."""
        mine = case.clean(me) | self.auditor.checked(case.commitment)
        return all(leaf in mine or draw.is_answered(leaf, case.clean) for leaf in draw.auditors)
