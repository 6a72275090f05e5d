"""The token-level GRPO objective with two-sided clipping. N output tokens; everything is (N,) float32."""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp(20) is finite in float32, and far beyond every clip
MAX_LOG_RATIO_KL = 10.0  # INTELLECT-2's clamp in k3, which is not bounded by a clip


@dataclass(frozen=True, slots=True)
class Objective:
    """clip: PPO's epsilon; delta: bound of the ratio where the advantage is negative, above 1 + clip."""

    clip: float = 0.2
    delta: float = 4.0
    kl: float = 0.0
    entropy: float = 0.0


def policy_objective(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float, delta: float) -> Tensor:
    """min(min(rho, delta) A, clamp(rho, 1 - clip, 1 + clip) A) with rho = exp(logprobs - old): to be maximised.

    PPO's clip leaves rho unbounded where A < 0, and one token can then dominate the batch; delta bounds it.

    Source: INTELLECT-2, arXiv 2505.07291.
    """
    ratio = torch.exp((logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    bounded = ratio.clamp(max=delta) * advantages
    clipped = ratio.clamp(1 - clip, 1 + clip) * advantages
    return torch.minimum(bounded, clipped)


def is_clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float, delta: float) -> Tensor:
    """Where the objective is flat in `logprobs`, so that the token gives no gradient; bool."""
    log_ratio = logprobs - old
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    gain = (advantages > 0) & (ratio > 1 + clip)
    loss = (advantages < 0) & ((ratio < 1 - clip) | (ratio > delta))
    return gain | loss


def kl_k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = reference - logprobs, never negative: an estimate of KL(policy, reference).

    Source: J. Schulman, "Approximating KL divergence" (2020), estimator k3.
    """
    difference = (reference - logprobs).clamp(-MAX_LOG_RATIO_KL, MAX_LOG_RATIO_KL)
    return torch.exp(difference) - difference - 1


def token_losses(
    logprobs: Tensor, old: Tensor, advantages: Tensor, entropies: Tensor, reference: Tensor | None, objective: Objective
) -> Tensor:
    """What each token adds to the loss, before division by the tokens of the whole batch.

    The caller divides by the batch's count, never by a micro-batch's, and passes output tokens only: there is no
    mask whose zero could meet an infinity.
    """
    losses = -policy_objective(logprobs, old, advantages, objective.clip, objective.delta)
    if reference is not None:
        losses = losses + objective.kl * kl_k3(logprobs, reference)
    if objective.entropy:
        losses = losses - objective.entropy * entropies
    return losses
