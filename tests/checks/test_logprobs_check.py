"""Check 10 by hand: what the mean and the largest error of a rollout's log-probabilities may be."""

import numpy as np
import pytest

from node.checks.logprobs import verify_logprobs
from node.rollouts.rollout import FINISH_LENGTH, Replay, Rollout
from node.runspec import ProofSpec
from node.verdicts import Check

SPEC = ProofSpec(
    chunk=32, top_k=128, exponent_mismatches=20, mantissa_mean=5.0, mantissa_median=4.0, logprob_mean_error=0.19,
    logprob_max_error=1.0,
)  # fmt: skip


def case(errors: list[float]) -> tuple[Rollout, Replay]:
    count = len(errors)
    rollout = Rollout(0, 0, (1,), (2,) * count, (-1.0,) * count, (b"",), FINISH_LENGTH, 0.0)
    replayed = np.array([-1.0 - error for error in errors], dtype=np.float32)
    none = np.zeros(count, dtype=np.float32)
    return rollout, Replay(np.zeros((count, 4), dtype=np.uint16), replayed, none, none)


@pytest.mark.parametrize("errors", [[0.396, 0.0], [0.4] * 7, [0.9, *[0.0] * 20], [0.18] * 8])
def test_honest_errors_pass(errors: list[float]) -> None:
    assert verify_logprobs(SPEC, 3, *case(errors)) is None


@pytest.mark.parametrize("errors", [[1.1], [0.2] * 8, [0.0] * 30 + [1.01]])
def test_errors_beyond_a_bound_are_rejected(errors: list[float]) -> None:
    rejected = verify_logprobs(SPEC, 3, *case(errors))

    assert rejected is not None
    assert (rejected.check, rejected.leaf) == (Check.LOGPROBS, 3)
