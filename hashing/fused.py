"""Seeded choices without a noise matrix: the best scores, log-probabilities and scores of tokens, in one pass.

Few tokens need their noise. G <= -log u, so a score of s or more has u <= exp(logit / T - s); those exponentials are
wanted for the normaliser anyway, and words are held against them. The few that pass get their noise in float64, as
`hashing.sampling.gumbel_reference` defines it.

For the CPU; imports numba, so that only what runs a model should import this. Letters: B rows of a batch, V vocabulary.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hashing.errors import OutOfRange
from hashing.kernel import all_rows
from hashing.sampling import Places


class RowScores(NamedTuple):
    """tokens (B,) int64; the rest (B,) float32: log-probabilities at the temperature, before noise; the best score, the
    second best, equal if tied, and the token's own."""

    tokens: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float32]
    best: npt.NDArray[np.float32]
    second: npt.NDArray[np.float32]
    own: npt.NDArray[np.float32]


def row_scores(
    logits_BV: npt.NDArray[np.float32] | npt.NDArray[np.uint16],
    places_B4: Places,
    temperature: float,
    tokens_B: npt.NDArray[np.int64] | None = None,
    threads: int = 1,
) -> RowScores:
    """What noise makes of each row's scores, float32(logit / T) + float32(G).

    Args:
        logits_BV: float32, or the bits of bfloat16 as uint16; two columns at least.
        places_B4: of each row's noise.
        tokens_B: tokens to be weighed; if None, each row's choice, the lowest index of the best score.
        threads: that share the rows among them.

    Returns:
        The four floats are NaN in a row where a logit, or it over the temperature, is NaN or infinite.

    Raises:
        OutOfRange: types, shapes, a token or the temperature do not fit.
    """
    given_B = _require_fit(logits_BV, places_B4, temperature, tokens_B)
    count = len(given_B)
    narrow = logits_BV.dtype == np.uint16
    patterns_BV = np.ascontiguousarray(logits_BV).view(np.uint16 if narrow else np.uint32)
    places_B4 = np.ascontiguousarray(places_B4)
    result_B4 = np.empty((count, 4), dtype=np.float32)
    fill = all_rows(patterns_BV.dtype.name)
    shift = np.uint32(16 * narrow)

    def fill_rows(first: int, end: int) -> None:
        here = slice(first, end)
        fill(patterns_BV[here], shift, np.float32(temperature), places_B4[here], given_B[here], result_B4[here])

    edges = [count * k // threads for k in range(threads + 1)]
    for done in [_pool(threads).submit(fill_rows, *share) for share in pairwise(edges)]:
        done.result()
    return RowScores(given_B, *np.ascontiguousarray(result_B4.T))


def _require_fit(
    logits_BV: npt.NDArray[Any], places_B4: Places, temperature: float, tokens_B: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.int64]:
    """The tokens (B,) to be weighed, -1 where a row's choice is meant. Raises: OutOfRange."""
    count, vocabulary = logits_BV.shape
    if logits_BV.dtype not in (np.float32, np.uint16):
        raise OutOfRange(f"logits are {logits_BV.dtype}, not float32 or the bits of bfloat16")
    if places_B4.shape != (count, 4) or not 2 <= vocabulary <= 1 << 32 or not temperature > 0:
        raise OutOfRange(f"{count} rows of {vocabulary} logits, places {places_B4.shape}, temperature {temperature}")
    given_B = np.full(count, -1) if tokens_B is None else np.array(tokens_B, dtype=np.int64)
    if given_B.shape != (count,) or not (tokens_B is None or ((given_B >= 0) & (given_B < vocabulary)).all()):
        raise OutOfRange(f"tokens {given_B.shape} are not one of {vocabulary} for each of {count} rows")
    return given_B


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "noise")
