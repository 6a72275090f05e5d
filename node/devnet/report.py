"""The closing table of a local network, computed from chain events and files, and whether all went as it should."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import mean
from typing import Any

from ledger.base import Address, State, Version
from node.devnet.observer import Observer
from node.record import Submission
from node.training.evaluation import Accuracy
from node.verdicts import Check

PENALISED = {"other-model": State.SLASHED, "edited-tokens": State.SLASHED, "forged-reward": State.VOIDED}

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """Amounts are in base units, as text. `failures` say, in words, what did not happen as it should;
    empty means success."""

    summary: Summary
    steps: list[Summary]
    verdicts: list[Summary]
    failures: list[str]
    groups: list[list[float]]  # by version: mean reward of every group of its accepted rollouts


def report(
    seen: Observer, cheater: Address | None, cheat: str | None, accuracy: dict[Version, Accuracy], seconds: float
) -> Report:
    """What an observer saw, in figures."""
    submissions = list(seen.record.submissions.values())
    return Report(
        summary=_summary(seen, submissions, accuracy, seconds),
        steps=[_step(seen, Version(version)) for version in range(len(seen.record.checkpoints))],
        verdicts=[
            _finding(seen, submission) for submission in submissions if submission.reports or _is_void(submission)
        ],
        failures=list(_failures(seen, submissions, cheater, cheat)),
        groups=[_groups(seen, Version(version)) for version in range(len(seen.record.checkpoints))],
    )


def _is_void(submission: Submission) -> bool:
    return submission.state in {State.VOIDED, State.EXPIRED}


def _summary(
    seen: Observer, submissions: list[Submission], accuracy: dict[Version, Accuracy], seconds: float
) -> Summary:
    states = {state.name.lower(): sum(s.state == state for s in submissions) for state in State}
    outputs = [len(row.output_ids) for rows in seen.files.values() for row in rows]
    paid = {s.made.node: 0 for s in submissions}
    for submission in submissions:
        paid[submission.made.node] += submission.reward
    return {
        "seconds": round(seconds, 1),
        "checkpoints": len(seen.record.checkpoints),
        "weights_fetched": sum(len(holders - {seen.record.run.params.trainer}) for holders in seen.holders.values()),
        "submissions": len(submissions),
        "states": {name: count for name, count in states.items() if count},
        "rollouts": len(outputs),
        "rollouts_audited": sum(seen.audits.values()),
        "output_tokens": sum(outputs),
        "outputs_of_32_tokens_or_more": sum(length >= 32 for length in outputs),
        "rewards": {seen.name(node): str(amount) for node, amount in paid.items()},
        "claimed": str(sum(claim.amount for claim in seen.record.claims)),
        "slashes": [_slash(seen, s) for s in submissions if s.slash is not None],
        "held_out": {str(version): _accuracy(figure) for version, figure in accuracy.items()},
    }


def _slash(seen: Observer, submission: Submission) -> Summary:
    slash = submission.slash
    if slash is None:
        return {}
    return {
        "node": seen.name(slash.node),
        "amount": str(slash.amount),
        "check": Check(submission.check).name if submission.check is not None else None,
        "transaction": "0x" + slash.transaction.hex(),
    }


def _accuracy(figure: Accuracy) -> Summary:
    return {
        "mean": round(figure.mean, 4),
        "standard_error": round(figure.standard_error, 4),
        "prompts": figure.prompts,
        "samples": figure.samples,
    }


def _step(seen: Observer, version: Version) -> Summary:
    """One version: the step that made it, who held it, and the mean reward of the accepted rollouts made with it."""
    made = [s for s in seen.record.submissions.values() if s.made.version == version]
    accepted = _accepted(seen, version)
    rewards = [row.reward for s in accepted for row in seen.files.get(s.made.commitment, ())]
    return {
        "version": int(version),
        "step": int(version) or None,  # version 0 is the base model
        "held_by": len(seen.holders.get(version, ())),
        "submissions": len(made),
        "accepted": len(accepted),
        "rollouts": len(rewards),
        "reward": round(mean(rewards), 4) if rewards else None,
    }


def _accepted(seen: Observer, version: Version) -> list[Submission]:
    made = [s for s in seen.record.submissions.values() if s.made.version == version]
    return [s for s in made if s.state == State.SETTLED]


def _groups(seen: Observer, version: Version) -> list[float]:
    files = [seen.files.get(s.made.commitment, ()) for s in _accepted(seen, version)]
    rewards = [[row.reward for row in rows] for file in files for _, rows in groupby(file, lambda row: row.group)]
    return [round(mean(group), 6) for group in rewards]


def _finding(seen: Observer, submission: Submission) -> Summary:
    """One rejected submission with what the validators measured, by their evidence."""
    faults = seen.faults.get(submission.made.commitment, [])
    first = next((seen.findings[fault.evidence] for fault in faults if fault.evidence in seen.findings), None)
    return {
        "node": seen.name(submission.made.node),
        "version": int(submission.made.version),
        "slot": submission.made.slot,
        "state": submission.state.name.lower(),
        "check": Check(submission.check).name if submission.check in set(Check) else None,
        "measured": first.measured if first else None,
        "permitted": first.threshold if first else None,
        "what": first.detail if first else None,
        "faults_signed": len(faults),
    }


def _failures(
    seen: Observer, submissions: list[Submission], cheater: Address | None, cheat: str | None
) -> Iterable[str]:
    spec, record = seen.spec, seen.record
    if len(record.checkpoints) != spec.max_steps + 1:
        yield f"{len(record.checkpoints)} checkpoints were published, not {spec.max_steps + 1}"
    for submission in submissions:
        honest = submission.made.node != cheater
        if not submission.state.final:
            yield f"a submission of {seen.name(submission.made.node)} has no final state"
        elif honest and submission.state != State.SETTLED:
            yield f"an honest submission of {seen.name(submission.made.node)} ended {submission.state.name.lower()}"
        elif not honest and submission.state == State.SETTLED:
            yield "a submission of the cheater was paid"
    if cheat is not None and not any(s.state == PENALISED[cheat] for s in submissions if s.made.node == cheater):
        yield f"the cheater ({cheat}) was not {PENALISED[cheat].name.lower()}"
    if not record.claims:
        yield "nobody claimed a reward"
    if len({holder for holders in seen.holders.values() for holder in holders}) < 2:
        yield "no node but one held any weights"
