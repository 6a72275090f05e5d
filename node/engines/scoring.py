"""From logits and noise to tokens, log-probabilities and the evidence of the sampling test; float32 throughout.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from node.errors import EngineError


class Choice(NamedTuple):
    """tokens (B,) int64; logprobs (B,) float32 at the temperature, before noise."""

    tokens: torch.Tensor
    logprobs: torch.Tensor


class TokenScores(NamedTuple):
    """Of given tokens: logprobs, gaps and deficits (B,) float32, as in `node.rollouts.rollout.Replay`."""

    logprobs: torch.Tensor
    gaps: torch.Tensor
    deficits: torch.Tensor


def choose(logits_BV: torch.Tensor, noise_BV: torch.Tensor, temperature: float) -> Choice:
    """argmax of logit / T + noise, the lowest index on ties.

    Raises:
        EngineError: a logit is NaN or infinite.
    """
    scaled_BV = _scaled(logits_BV, temperature)
    normaliser_B = _normaliser(scaled_BV)
    tokens_B = first_argmax(scaled_BV + noise_BV)
    return Choice(tokens_B, scaled_BV.gather(1, tokens_B[:, None])[:, 0] - normaliser_B)


def weigh(logits_BV: torch.Tensor, noise_BV: torch.Tensor, tokens_B: torch.Tensor, temperature: float) -> TokenScores:
    """How far the emitted tokens are from what the noise chooses.

    Raises:
        EngineError: a logit is NaN or infinite.
    """
    scaled_BV = _scaled(logits_BV, temperature)
    logprobs_B = scaled_BV.gather(1, tokens_B[:, None])[:, 0] - _normaliser(scaled_BV)
    scores_BV = scaled_BV.add_(noise_BV)
    best_B2 = scores_BV.topk(2, dim=1).values
    emitted_B = scores_BV.gather(1, tokens_B[:, None])[:, 0]
    return TokenScores(logprobs_B, best_B2[:, 0] - best_B2[:, 1], best_B2[:, 0] - emitted_B)


def first_argmax(scores_BV: torch.Tensor) -> torch.Tensor:
    """Index (B,) of the greatest value, the lowest one on ties, which torch's own argmax does not promise."""
    if scores_BV.device.type == "cpu":
        return torch.from_numpy(scores_BV.numpy().argmax(axis=1))
    index_V = torch.arange(scores_BV.shape[1], device=scores_BV.device)
    best_B1 = scores_BV.amax(dim=1, keepdim=True)
    return torch.where(scores_BV == best_B1, index_V, scores_BV.shape[1]).amin(dim=1)


def _scaled(logits_BV: torch.Tensor, temperature: float) -> torch.Tensor:
    return logits_BV.to(torch.float32, copy=True).div_(temperature)


def _normaliser(scaled_BV: torch.Tensor) -> torch.Tensor:
    normaliser_B = torch.logsumexp(scaled_BV, dim=1)
    if not bool(torch.isfinite(normaliser_B).all()):
        raise EngineError("the model's logits are not finite: its weights are broken, or this machine is")
    return normaliser_B
