"""Log-probabilities of given tokens from hidden states, a chunk of rows at a time.

N output tokens, H hidden size, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from node.widening import product


class TokenStatistics(NamedTuple):
    """Both (N,) float32: of the given tokens, and of the distributions they were drawn from (zeros if not asked)."""

    logprobs: Tensor
    entropies: Tensor


def token_statistics(
    hidden_NH: Tensor, head_VH: Tensor, targets_N: Tensor, temperature: float, with_entropy: bool = False
) -> TokenStatistics:
    """log softmax(hidden . head / temperature) at `targets_N`, in nats.

    The logits of all N rows exist at once, in float32: pass as many rows as memory allows. Differentiable in
    `hidden_NH` and `head_VH`.
    """
    logits_NV = product(hidden_NH, head_VH).float()
    if temperature != 1.0:
        logits_NV = logits_NV / temperature
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    logprobs_N = logprobs_NV.gather(1, targets_N[:, None])[:, 0]
    if not with_entropy:
        return TokenStatistics(logprobs_N, torch.zeros_like(logprobs_N))
    return TokenStatistics(logprobs_N, -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1))
