"""What `hashing.fused` says of scores, in torch operations, for tensors on any device: a batch of rows at once.

Noise is computed in float64, as `hashing.sampling.gumbel_reference` defines it, a bounded number of counters at a time.

Letters: B rows of a batch, V vocabulary, N counters of four tokens each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from hashing.sampling import MULTIPLIERS, NOISE_STREAM, ROUNDS, WEYL, Places

_MASK = 0xFFFFFFFF
_COUNTERS_AT_ONCE = 1 << 18  # 2 MB for each of their words as int64; about ten of those are needed


class RowScores(NamedTuple):
    """As `hashing.fused.RowScores`, on the logits' device."""

    tokens: torch.Tensor
    logprobs: torch.Tensor
    best: torch.Tensor
    second: torch.Tensor
    own: torch.Tensor


def row_scores(
    logits_BV: torch.Tensor, places_B4: Places, temperature: float, tokens_B: torch.Tensor | None = None
) -> RowScores:
    """As `hashing.fused.row_scores`, in torch; arguments are not checked."""
    scaled_BV = logits_BV.to(torch.float32, copy=True).div_(temperature)
    scores_BV = scaled_BV.clone()
    add_noise(scores_BV, places_B4)
    chosen_B = first_argmax(scores_BV) if tokens_B is None else tokens_B
    best_B2 = scores_BV.topk(2, dim=1).values
    own_B = scores_BV.gather(1, chosen_B[:, None])[:, 0]
    floats = (_logprobs(scaled_BV, chosen_B), best_B2[:, 0], best_B2[:, 1], own_B)
    finite_B = torch.isfinite(scaled_BV).all(dim=1)
    return RowScores(chosen_B, *(values_B.where(finite_B, torch.nan) for values_B in floats))


def add_noise(scores_BV: torch.Tensor, places_B4: Places) -> None:
    """Adds to each float32 score its Gumbel noise, in place."""
    count, vocabulary = scores_BV.shape
    place_4B1 = torch.from_numpy(places_B4.astype("int64")).to(scores_BV.device).T[:, :, None]
    step = max(1, _COUNTERS_AT_ONCE // max(1, count))
    for left in range(0, -(-vocabulary // 4), step):
        here_BM = scores_BV[:, 4 * left : 4 * (left + step)]
        quad_1N = torch.arange(left, left + -(-here_BM.shape[1] // 4), device=scores_BV.device)[None]
        words_BNW = torch.stack(_philox(quad_1N, place_4B1), dim=2)
        u_BM = words_BNW.reshape(count, -1)[:, : here_BM.shape[1]].double().add_(0.5).mul_(2.0**-32)
        here_BM.sub_(u_BM.neg_().log1p_().neg_().log_().to(torch.float32))


def first_argmax(scores_BV: torch.Tensor) -> torch.Tensor:
    """Index (B,) of the greatest value, the lowest one on ties, which torch's own argmax does not promise."""
    index_V = torch.arange(scores_BV.shape[1], device=scores_BV.device)
    best_B1 = scores_BV.amax(dim=1, keepdim=True)
    first_B = torch.where(scores_BV == best_B1, index_V, scores_BV.shape[1]).amin(dim=1)
    return first_B.clamp_(max=scores_BV.shape[1] - 1)  # where all are NaN, which equal nothing


def _logprobs(scaled_BV: torch.Tensor, tokens_B: torch.Tensor) -> torch.Tensor:
    """Of tokens (B,). What is not the greatest is summed by itself: next to 1 a small rest would be lost."""
    below_BV = scaled_BV - scaled_BV.amax(dim=1, keepdim=True)
    equal_BV = below_BV == 0
    others_B = below_BV.exp().masked_fill_(equal_BV, 0).sum(dim=1, dtype=torch.float64) + (equal_BV.sum(dim=1) - 1)
    return (below_BV.gather(1, tokens_B[:, None])[:, 0] - others_B.log1p()).to(torch.float32)


def _philox(quad_1N: torch.Tensor, place_4B1: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Words (B, N) of the counters (quad, t, rollout, 1). Products wrap, and so keep all of their 64 bits."""
    c1, c2, k0, k1 = place_4B1
    c0, c3 = quad_1N, torch.full_like(c1, NOISE_STREAM)
    for i in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        key0, key1 = (k0 + i * WEYL[0]) & _MASK, (k1 + i * WEYL[1]) & _MASK
        c0, c1 = (p1 >> 32 & _MASK) ^ c1 ^ key0, p1 & _MASK
        c2, c3 = (p0 >> 32 & _MASK) ^ c3 ^ key1, p0 & _MASK
    return c0, c1, c2, c3
