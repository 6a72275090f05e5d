"""Check 10, log-probabilities: those reported are the model's, within the run's bounds.

Honest errors have heavy tails and forging them earns nothing (the trainer computes its own), so a failure voids the
submission and slashes nobody.
"""

from dataclasses import dataclass

import numpy as np

from node.rollouts.rollout import Replay, Rollout
from node.runspec import ProofSpec
from node.verdicts import Check, Rejected

MIN_MEAN_TOKENS = 8  # the mean of fewer errors has the tails of a single one: 0.198 of two tokens, seen honestly


@dataclass(frozen=True, slots=True)
class LogprobError:
    """Nats per token, over a rollout."""

    mean: float
    largest: float


def logprob_error(rollout: Rollout, replay: Replay) -> LogprobError:
    """How far the reported log-probabilities are from the replayed ones; there are as many, at least one."""
    error_T = np.abs(np.array(rollout.logprobs, dtype=np.float64) - replay.logprobs)
    return LogprobError(float(error_T.mean()), float(error_T.max()))


def verify_logprobs(spec: ProofSpec, leaf: int, rollout: Rollout, replay: Replay) -> Rejected | None:
    """The largest error, and over `MIN_MEAN_TOKENS` or more the mean, are within the run's bounds.

    `replay` must not be absurd (`node.checks.sanity`).
    """
    error = logprob_error(rollout, replay)
    mean_is_judged = len(rollout.output_ids) >= MIN_MEAN_TOKENS
    mean_fits = not mean_is_judged or error.mean <= spec.logprob_mean_error
    if mean_fits and error.largest <= spec.logprob_max_error:
        return None
    return Rejected(
        Check.LOGPROBS,
        leaf,
        f"{error.mean:.4g}, {error.largest:.4g}",
        f"{spec.logprob_mean_error:g}, {spec.logprob_max_error:g}",
        "error of the log-probabilities in nats: mean, largest",
    )
