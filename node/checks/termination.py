"""Check 7, termination: an answer ends at its first EOS id, or exactly at the length limit, and says which.

The probability of EOS is no ground here: honest answers often stop at an unlikely EOS. EOS is a token like any other
and falls under the sampling check.
"""

from node.checks.subject import Subject
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Rollout
from node.verdicts import Check, Rejected


def verify_termination(subject: Subject, leaf: int, rollout: Rollout) -> Rejected | None:
    """finish is 0 iff the last token is an EOS id, else 1 and the output at its limit; no EOS id comes earlier."""
    eos, most = frozenset(subject.spec.model.eos_ids), subject.spec.sampling.max_output_tokens
    *before, last = rollout.output_ids
    early = next((t for t, token in enumerate(before) if token in eos), None)
    if early is not None:
        return _rejected(leaf, f"EOS at {early} of {len(rollout.output_ids)}", "EOS last", "tokens follow an EOS id")
    if last not in eos and len(rollout.output_ids) != most:
        return _rejected(leaf, f"{len(rollout.output_ids)} tokens", f"EOS or {most} tokens", "the answer is cut short")
    finish = FINISH_EOS if last in eos else FINISH_LENGTH
    if rollout.finish != finish:
        return _rejected(leaf, f"finish {rollout.finish}", f"finish {finish}", "finish does not fit the tokens")
    return None


def _rejected(leaf: int, measured: str, threshold: str, detail: str) -> Rejected:
    return Rejected(Check.TERMINATION, leaf, measured, threshold, detail)
