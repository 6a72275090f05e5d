"""From logits and places of noise to tokens, log-probabilities and the evidence of the sampling test.

On the CPU by compiled loops, elsewhere by torch. Letters: B rows, N rows of any number, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from hashing import device
from hashing.sampling import Places
from node.errors import EngineError

ROWS_AT_ONCE = 256  # rows of full-vocabulary logits: fewer multiply slower


class Choice(NamedTuple):
    """tokens (B,) int64; logprobs (B,) float32 at the temperature, before noise."""

    tokens: torch.Tensor
    logprobs: torch.Tensor


class TokenScores(NamedTuple):
    """Of given tokens: logprobs, gaps and deficits (B,) float32, as in `node.rollouts.rollout.Replay`."""

    logprobs: torch.Tensor
    gaps: torch.Tensor
    deficits: torch.Tensor


def choose(logits_BV: torch.Tensor, places_B4: Places, temperature: float) -> Choice:
    """argmax of logit / T + noise, the lowest index on ties.

    Raises:
        EngineError: a logit is NaN or infinite.
    """
    choice = choose_unchecked(logits_BV, places_B4, temperature)
    _require_finite(choice.logprobs)
    return choice


def choose_unchecked(logits_BV: torch.Tensor, places_B4: Places, temperature: float) -> Choice:
    """As `choose`, without waiting for a GPU: where a logit is NaN or infinite, a log-probability is NaN and its
    token some token, so that a batch goes on until who notes it sees."""
    scores = _row_scores(logits_BV, places_B4, temperature, None)
    return Choice(scores.tokens.clamp_min(0), scores.logprobs)


def weigh(logits_BV: torch.Tensor, places_B4: Places, tokens_B: torch.Tensor, temperature: float) -> TokenScores:
    """How far the emitted tokens are from what the noise chooses.

    Raises:
        EngineError: a logit is NaN or infinite.
    """
    scores = _row_scores(logits_BV, places_B4, temperature, tokens_B)
    _require_finite(scores.logprobs)
    return TokenScores(scores.logprobs, scores.best - scores.second, scores.best - scores.own)


def weigh_states(
    states_NH: torch.Tensor,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    places_N4: Places,
    tokens: Sequence[int],
    temperature: float,
) -> TokenScores:
    """As `weigh`, of the states that predicted `tokens`: a bounded number of full-vocabulary rows at a time.

    Raises:
        EngineError: a logit is NaN or infinite.
    """
    tokens_N = torch.tensor(tokens, device=states_NH.device)
    parts = []
    for at in range(0, len(tokens), ROWS_AT_ONCE):
        here = slice(at, at + ROWS_AT_ONCE)
        parts.append(weigh(logits_of(states_NH[here]), places_N4[here], tokens_N[here], temperature))
    return TokenScores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _row_scores(
    logits_BV: torch.Tensor, places_B4: Places, temperature: float, tokens_B: torch.Tensor | None
) -> device.RowScores:
    on_cpu = logits_BV.device.type == "cpu"
    return (_compiled if on_cpu else device.row_scores)(logits_BV, places_B4, temperature, tokens_B)


def _require_finite(logprobs_B: torch.Tensor) -> None:
    if not bool(torch.isfinite(logprobs_B).all()):
        raise EngineError("the model's logits are not finite: its weights are broken, or this machine is")


def _compiled(
    logits_BV: torch.Tensor, places_B4: Places, temperature: float, tokens_B: torch.Tensor | None
) -> device.RowScores:
    from hashing import fused  # imports numba, which a GPU does not need

    given_B = None if tokens_B is None else tokens_B.numpy()
    found = fused.row_scores(_patterns(logits_BV), places_B4, temperature, given_B, threads=torch.get_num_threads())
    return device.RowScores(*(torch.from_numpy(column) for column in found))


def _patterns(logits_BV: torch.Tensor) -> npt.NDArray[np.float32] | npt.NDArray[np.uint16]:
    """float32, or the bits of bfloat16."""
    if logits_BV.dtype == torch.bfloat16:
        return logits_BV.contiguous().view(torch.int16).numpy().view(np.uint16)
    return logits_BV.to(torch.float32).numpy()
