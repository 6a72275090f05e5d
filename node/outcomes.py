"""What became of a submission, and why, in words and figures. Pure: from the run's record, and what else is known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.base import UNDECIDED, WHOLE_FILE, Address, Digest, State
from node.record import Record, Submission
from node.verdicts import Rejected, check_name

Summary = dict[str, Any]
When = Callable[[int, int], str]  # (block time, the latest block's time) -> that time in words


@dataclass(frozen=True, slots=True)
class Known:
    """What validators said about a submission; nothing of it is on chain.

    holders: who signed to hold the file, None where nobody could be asked. finding and evidence: what it was rejected
    for, and the digest of the file that shows it.
    """

    holders: tuple[Address, ...] | None = None
    finding: Rejected | None = None
    evidence: Digest | None = None


def block_time(time: int, now: int) -> str:
    """For machines: as the chain has it."""
    return f"block time {time}"


def outcome(record: Record, submission: Submission, known: Known, when: When = block_time) -> Summary:
    """One submission: numbers as the chain has them (base units as text, seconds since 1970), `why` in words."""
    made, params = submission.made, record.run.params
    found, reported = known.finding, most_votes(submission)
    return {
        "version": made.version,
        "slot": made.slot,
        "commitment": "0x" + made.commitment.hex(),
        "node": made.node,
        "units": made.units,
        "state": submission.state.name.lower(),
        "why": why(record, submission, known, when),
        "submitted_at": made.block.time,
        "due": record.due(submission),
        "expires_at": _expires_at(record, submission),
        "concluded_at": submission.concluded.time if submission.concluded else None,
        "reward": str(submission.reward),
        "holders": None if known.holders is None else list(known.holders),
        "quorum": params.quorum,
        "validators": len(params.validators),
        "votes": reported[1] if reported else 0,
        "check": _check_of(submission, found),
        "leaf": _leaf_of(submission, found),
        "measured": found.measured if found else None,
        "permitted": found.threshold if found else None,
        "what": found.detail if found else None,
        "evidence": "0x" + known.evidence.hex() if known.evidence else None,
        "slashed": str(submission.slash.amount) if submission.slash else "0",
        "transaction": "0x" + submission.slash.transaction.hex() if submission.slash else None,
    }


def _check_of(submission: Submission, found: Rejected | None) -> str | None:
    if submission.check is not None:
        return check_name(submission.check)
    if submission.reports:
        return check_name(submission.reports[0].check)
    return check_name(found.check) if found else None


def _leaf_of(submission: Submission, found: Rejected | None) -> int | None:
    if submission.conviction is not None:
        return submission.conviction.leaf
    reported = most_votes(submission)
    return reported[0] if reported else found.leaf if found else None


def most_votes(submission: Submission) -> tuple[int, int] | None:
    """The leaf that most validators reported, and how many did; None without a report."""
    votes: dict[int, set[Address]] = {}
    for report in submission.reports:
        votes.setdefault(report.leaf, set()).add(report.validator)
    return max(((leaf, len(who)) for leaf, who in votes.items()), key=lambda each: each[1], default=None)


def why(record: Record, submission: Submission, known: Known, when: When = block_time) -> str:
    """The reason for a submission's state, and what comes next, in words."""

    def at(time: int) -> str:
        return when(time, record.head.time)

    match submission.state:
        case State.SUBMITTED:
            return _open(record, submission, at) + _held(record, known)
        case State.SETTLED:
            return "accepted by a quorum and paid"
        case State.FAULTED if submission.conviction is not None:
            begins = at(submission.conviction.executable_at)
            return f"convicted: {_votes(record, submission)}{_figures(known)}; the slash can be executed from {begins}"
        case State.FAULTED:
            until = at(decided_by(record, submission))
            return f"reported: {_votes(record, submission)}{_figures(known)}; void without a quorum by {until}"
        case State.VOIDED if submission.check == UNDECIDED:
            return f"void, nothing burnt: {_votes(record, submission)} and no quorum agreed in time"
        case State.VOIDED:
            return f"void, no pay, bond burnt: {check_name(submission.check)}{_figures(known)}"
        case State.EXPIRED:
            until = at(_expires_at(record, submission))
            return f"no quorum signed by {until}: nothing paid, nothing lost{_held(record, known)}"
        case State.SLASHED:
            return f"slashed: {_votes(record, submission)}{_figures(known)}"
        case _:
            return "unknown"


def _open(record: Record, submission: Submission, at: Callable[[int], str]) -> str:
    now, due, expires = record.head.time, record.due(submission), _expires_at(record, submission)
    if now < record.audit_time(submission):
        return f"waiting for the audit, drawn at {at(record.audit_time(submission))}; can be paid from {at(due)}"
    if now < due:
        return f"being audited; can be paid from {at(due)}"
    if now <= expires:
        return f"waiting for a quorum's signatures; expires after {at(expires)}"
    return f"its time was over at {at(expires)}: it expires once a validator, or a minute later its worker, says so"


def _expires_at(record: Record, submission: Submission) -> int:
    """The last second in which it can be settled."""
    return submission.made.block.time + record.run.params.windows.settle_by


def _held(record: Record, known: Known) -> str:
    if known.holders is None:
        return ""
    params = record.run.params
    return f"; held by {len(known.holders)} of {len(params.validators)} validators ({params.quorum} needed)"


def _votes(record: Record, submission: Submission) -> str:
    reported = most_votes(submission)
    if reported is None:
        return check_name(submission.check)
    leaf, count = reported
    check = next(report.check for report in submission.reports if report.leaf == leaf)
    where = "the whole file" if leaf == WHOLE_FILE else f"rollout {leaf}"
    return f"{count} of {record.run.params.quorum} votes for {check_name(check)} on {where}"


def _figures(known: Known) -> str:
    found = known.finding
    if found is None:
        return ""
    return f", measured {found.measured}, permitted {found.threshold} ({found.detail})"


def decided_by(record: Record, submission: Submission) -> int:
    """The last second in which a vote counts on a leaf that was reported (`Reports.sol`, `isUndecided`)."""
    opened: dict[int, int] = {}
    for report in submission.reports:
        opened.setdefault(report.leaf, report.block.time)
    latest = max(opened.values(), default=0)
    return max(latest, record.due(submission)) + record.run.params.windows.confirm
