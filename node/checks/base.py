"""All checks of a submission, in the order of their codes: cheap ones of every leaf, deep ones of audited leaves.

The first failure is named, of the lowest code and then of the lowest leaf, so that all validators name the same one.
"""

from collections.abc import Mapping

from node.checks.assignment import verify_prompt
from node.checks.bounds import verify_bounds
from node.checks.logprobs import logprob_error, verify_logprobs
from node.checks.reward import verify_reward
from node.checks.root import verify_root
from node.checks.sampling import accumulate, log_evidence, verify_file, verify_rollout
from node.checks.sanity import absurdity
from node.checks.schema import verify_schema
from node.checks.subject import Claim, Subject, Tasks
from node.checks.termination import verify_termination
from node.checks.toploc import judged, verify_proofs, widest
from node.rollouts.rollout import Replay, Rollout
from node.runspec import RunSpec
from node.verdicts import Accepted, Undecided, Verdict

__all__ = ["Claim", "Subject", "Tasks", "cheap", "cheap_leaf", "deep", "deep_leaves"]

OF_FILES = (verify_schema, verify_root)
OF_LEAVES = (verify_prompt, verify_bounds, verify_reward, verify_termination)


def cheap(subject: Subject) -> Verdict:
    """Checks 1 to 4, 6 and 7 of a whole submission. Check 0, the beacon, needs the chain and is the caller's."""
    for of_file in OF_FILES:
        if (rejected := of_file(subject)) is not None:
            return rejected
    for of_leaf in OF_LEAVES:
        for leaf, rollout in enumerate(subject.rollouts):
            if (found := of_leaf(subject, leaf, rollout)) is not None:
                return found
    return Accepted()


def cheap_leaf(subject: Subject, leaf: int, rollout: Rollout) -> Verdict:
    """Checks 3, 4, 6 and 7 of one leaf, which need no other; `subject.rollouts` is not looked at."""
    for of_leaf in OF_LEAVES:
        if (found := of_leaf(subject, leaf, rollout)) is not None:
            return found
    return Accepted()


def deep(subject: Subject, replays: Mapping[int, Replay]) -> Verdict:
    """Checks 8 to 10 of the leaves that were replayed, and check 9 of them together.

    An absurd replay leaves everything undecided: an engine that gave one cannot be believed on the others.
    """
    return deep_leaves(subject.spec, {leaf: subject.rollouts[leaf] for leaf in replays}, replays)


def deep_leaves(spec: RunSpec, rollouts: Mapping[int, Rollout], replays: Mapping[int, Replay]) -> Verdict:
    """As `deep`, where only some leaves are at hand; both mappings have the same keys."""
    leaves = sorted(replays)
    for leaf in leaves:
        if (absurd := absurdity(rollouts[leaf], replays[leaf])) is not None:
            return Undecided(f"leaf {leaf}: the replay cannot be right: {absurd}")
    rejected = (
        next((r for leaf in leaves if (r := verify_proofs(spec.proof, leaf, rollouts[leaf], replays[leaf]))), None)
        or next((r for leaf in leaves if (r := verify_rollout(spec.sampling_test, leaf, replays[leaf]))), None)
        or verify_file(spec.sampling_test, [replays[leaf] for leaf in leaves])
        or next((r for leaf in leaves if (r := verify_logprobs(spec.proof, leaf, rollouts[leaf], replays[leaf]))), None)
    )
    return rejected or Accepted(_figures(spec, rollouts, replays))


def _figures(
    spec: RunSpec, rollouts: Mapping[int, Rollout], replays: Mapping[int, Replay]
) -> tuple[tuple[str, float], ...]:
    """What was measured over all leaves: largest distances and errors, summed evidence."""
    leaves = sorted(replays)
    if not leaves:
        return ()
    far = widest(tuple(distance for leaf in leaves for distance in judged(rollouts[leaf], replays[leaf])))
    errors = [logprob_error(rollouts[leaf], replays[leaf]) for leaf in leaves]
    evidence = [log_evidence(replays[leaf].gaps, replays[leaf].deficits, spec.sampling_test.tail) for leaf in leaves]
    return (
        ("mismatches", far.mismatches),
        ("mantissa_mean", far.mantissa_mean),
        ("mantissa_median", far.mantissa_median),
        ("log_evidence", accumulate(evidence)),
        ("tokens", sum(len(rollouts[leaf].output_ids) for leaf in leaves)),
        ("tokens_missed", float(sum(int((replays[leaf].deficits > 0).sum()) for leaf in leaves))),
        ("logprob_mean_error", max(error.mean for error in errors)),
        ("logprob_max_error", max(error.largest for error in errors)),
    )
