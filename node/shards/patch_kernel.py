"""The two loops of `patch_words`, compiled by numba: a sort does what they do in ten times the time.

Import it only where a patch is made or applied. Compiled code is kept beside this file, or in the user's cache folder.

Letters: W words of a chunk, N changed ones.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba.core.types import Array, int64, uint16, void

EXPONENTS = 256
READ = Array(uint16, 1, "C", readonly=True)
MADE = Array(int64, 1, "C")

Words = npt.NDArray[np.uint16]
Indices = npt.NDArray[np.int64]


def changed_ranks(base_W: Words, target_W: Words, count: int) -> tuple[Indices, Indices, Indices]:
    """Of the `count` words that differ, where they are and how many of their exponent stand before each, shape (N,);
    and how many words of each exponent there are, shape (256,)."""
    indices_N, ranks_N = np.empty(count, np.int64), np.empty(count, np.int64)
    totals = np.zeros(EXPONENTS, np.int64)
    _compiled(_rank, void(READ, READ, MADE, MADE, MADE))(base_W, target_W, indices_N, ranks_N, totals)
    return indices_N, ranks_N, totals


def exponent_totals(words_W: Words) -> Indices:
    """How many words of each exponent there are, shape (256,)."""
    totals = np.zeros(EXPONENTS, np.int64)
    _compiled(_count, void(READ, MADE))(words_W, totals)
    return totals


def ranked_indices(words_W: Words, ranks_N: Indices, ends: Indices) -> Indices:
    """Where the words are that have `ranks_N` others of their exponent before them, shape (N,).

    The ranks of exponent e, ascending and all below its total, are those from `ends[e - 1]` to `ends[e]`.
    """
    indices_N = np.empty(len(ranks_N), np.int64)
    _compiled(_find, void(READ, MADE, MADE, MADE))(words_W, ranks_N, ends, indices_N)
    return indices_N


def _rank(base_W: Any, target_W: Any, indices_N: Any, ranks_N: Any, totals: Any) -> None:
    n = 0
    for i in range(len(base_W)):
        exponent = base_W[i] >> 7 & 0xFF
        if base_W[i] != target_W[i] and n < len(indices_N):
            indices_N[n], ranks_N[n] = i, totals[exponent]
            n += 1
        totals[exponent] += 1


def _count(words_W: Any, totals: Any) -> None:
    for i in range(len(words_W)):
        totals[words_W[i] >> 7 & 0xFF] += 1


def _find(words_W: Any, ranks_N: Any, ends: Any, indices_N: Any) -> None:
    seen = np.zeros(256, np.int64)
    nexts = np.zeros(256, np.int64)
    nexts[1:] = ends[:-1]
    for i in range(len(words_W)):
        exponent = words_W[i] >> 7 & 0xFF
        n = nexts[exponent]
        if n < ends[exponent] and ranks_N[n] == seen[exponent]:
            indices_N[n] = i
            nexts[exponent] = n + 1
        seen[exponent] += 1


@functools.cache
def _compiled(loop: Callable[..., None], signature: Any) -> Any:
    """Kept code is used if there is any; what cannot be kept or read is compiled for this process alone."""
    try:
        return numba.njit(signature, nogil=True, cache=True)(loop)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
        return numba.njit(signature, nogil=True)(loop)
