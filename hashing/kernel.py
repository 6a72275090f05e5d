"""The loops of `hashing.fused`, compiled by numba for this machine's CPU.

Loops are short and without branches, so that LLVM makes vector loops of them; `benchmarks/noise.py` shows whether it
did, after a change or under another version. Compiled code is kept beside this file, or in the user's cache folder.

Letters: B rows of a batch, V vocabulary, N tokens of a block.
"""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.types import Array

from hashing.sampling import MULTIPLIERS, NOISE_STREAM, WEYL

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Floats = npt.NDArray[np.float32]
_Bits = npt.NDArray[np.uint32]
_Quad = tuple[Any, Any, Any, Any]  # uint64s below 2^32
_Found = tuple[int, Any, Any]  # token, best score, second best score

_BLOCK_QUADS = 128  # what these need stays in a core's first-level cache
_BLOCK = 4 * _BLOCK_QUADS  # tokens
_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_MASK, _WORD, _STREAM = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(NOISE_STREAM)
_ZERO, _HALF, _ONE, _INFINITY = np.float32(0), np.float32(0.5), np.float32(1), np.float32(np.inf)
_INFINITY_BITS, _LOWEST_BITS = np.int32(0x7F800000), np.int32(-0x800000)  # of inf and -inf
_MAGNITUDE = np.int32(0x7FFFFFFF)
_EXPONENT_BIAS, _FRACTION_BITS = np.int32(127), np.int32(23)
_HALF_WORD_UNIT = np.float32(2.0**-31)
_LEAST_NOISE = np.float32(-3.14)  # that of the largest word is -log(33 log 2) = -3.13
_LEAST_POWER = np.float32(-87)  # exp of less is no normal float32
_MOST_POWER = np.float32(60)  # far from exp's overflow, and enough for a word's least chance, 2^-32

# Cephes, expf.c (Moshier): exp(r) is 1 + r + r^2 P(r) for |r| <= log(2) / 2
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504088896341), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)


def _part(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compiled into what calls it: a loop around a call is no vector loop. Sums may be reordered; NaN stays NaN."""
    made: Callable[_P, _R] = numba.njit(nogil=True, forceinline=True, fastmath={"reassoc", "contract"})(function)
    return made


@_part
def _round(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> _Quad:
    p0, p1 = c0 * _M0, c2 * _M1
    return (p1 >> _WORD) ^ c1 ^ (k0 & _MASK), p1 & _MASK, (p0 >> _WORD) ^ c3 ^ (k1 & _MASK), p0 & _MASK


@_part
def _philox(quad: Any, place: _Quad) -> _Quad:
    """Ten rounds, written out: a loop in here would keep the loop around it from becoming one of vectors."""
    t, rollout, k0, k1 = place
    c0, c1, c2, c3 = _round(quad, t, rollout, _STREAM, k0, k1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + _W0, k1 + _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(2) * _W0, k1 + np.uint64(2) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(3) * _W0, k1 + np.uint64(3) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(4) * _W0, k1 + np.uint64(4) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(5) * _W0, k1 + np.uint64(5) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(6) * _W0, k1 + np.uint64(6) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(7) * _W0, k1 + np.uint64(7) * _W1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + np.uint64(8) * _W0, k1 + np.uint64(8) * _W1)
    return _round(c0, c1, c2, c3, k0 + np.uint64(9) * _W0, k1 + np.uint64(9) * _W1)


@_part
def _fill_words(first: int, place: _Quad, words_N: _Bits) -> None:
    """Words of a block's quads from `first` on."""
    for j in range(_BLOCK_QUADS):
        w0, w1, w2, w3 = _philox(np.uint64(first + j), place)
        words_N[4 * j] = w0
        words_N[4 * j + 1] = w1
        words_N[4 * j + 2] = w2
        words_N[4 * j + 3] = w3


@_part
def gumbel(word: Any) -> Any:
    """As `hashing.sampling.gumbel_reference`, rounded to float32."""
    u = (np.float64(word) + 0.5) * 2.0**-32
    return np.float32(-math.log(-math.log1p(-u)))


@_part
def _score(scaled_V: _Floats, token: int, place: _Quad) -> Any:
    words = _philox(np.uint64(token // 4), place)
    return scaled_V[token] + gumbel(words[token % 4])


@_part
def _fill_scaled(patterns_V: npt.NDArray[Any], shift: Any, temperature: Any, scaled_V: _Floats) -> Any:
    """logit / T in float32; whether all are finite."""
    bits_V = scaled_V.view(np.uint32)
    for i in range(patterns_V.size):
        bits_V[i] = np.uint32(patterns_V[i]) << shift
    for i in range(scaled_V.size):
        scaled_V[i] = scaled_V[i] / temperature
    signed_V = scaled_V.view(np.int32)
    most = np.int32(0)
    for i in range(signed_V.size):
        most = max(most, np.int32(signed_V[i] & _MAGNITUDE))
    return most < _INFINITY_BITS


@_part
def _ordered(bits: Any) -> Any:
    """Bits of a float32 as an integer that compares as the float does; doing it again undoes it."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & _MAGNITUDE))


@_part
def _greatest_below(scaled_V: _Floats, limit: Any) -> Any:
    """-inf if no value is below. Integers are compared: of floats that is no vector loop unless NaN is ruled out."""
    bits_V = scaled_V.view(np.int32)
    best = _ordered(_LOWEST_BITS)
    for i in range(scaled_V.size):
        best = max(best, _ordered(bits_V[i]) if scaled_V[i] < limit else _ordered(_LOWEST_BITS))
    result_1 = np.empty(1, dtype=np.int32)
    result_1[0] = _ordered(np.int32(best))
    return result_1.view(np.float32)[0]


@_part
def _count_equal(values_V: _Floats, value: Any) -> Any:
    """As float32, so that the loop counts in as many lanes as it compares in."""
    count = _ZERO
    for i in range(values_V.size):
        count += _ONE if values_V[i] == value else _ZERO
    return count


@_part
def _fill_exponentials(scaled_N: _Floats, base: Any, top: Any, powers_N: _Floats, result_N: _Floats) -> Any:
    """exp(scaled - base), each to 2e-7 of itself and bounded; the sum of those below the top, `base` the next to it."""
    bits_N = powers_N.view(np.int32)
    for i in range(scaled_N.size):
        x = min(max(scaled_N[i] - base, _LEAST_POWER), _MOST_POWER)
        power = np.int32(np.floor(x * _LOG2E + _HALF))
        r = x - np.float32(power) * _LN2_HIGH - np.float32(power) * _LN2_LOW
        p = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
        result_N[i] = p * (r * r) + r + _ONE
        bits_N[i] = (power + _EXPONENT_BIAS) << _FRACTION_BITS
    total = _ZERO
    for i in range(scaled_N.size):
        result_N[i] *= powers_N[i]
        here = (scaled_N[i] < top) & (scaled_N[i] - base > _LEAST_POWER)
        total += result_N[i] if here else _ZERO
    return total


@_part
def _factor(base: Any, bound: Any) -> Any:
    """exp(base - bound), and more for rounding: 1e-4 for exponentials and words, 8 units in a score's last place."""
    slack = 1e-4 + 2.0**-20 * (abs(np.float64(base)) + 32)
    return np.float32(math.exp(min(np.float64(base) - np.float64(bound) + slack, np.float64(_MOST_POWER))))


@_part
def _may_win(word: Any, exponential: Any, factor: Any) -> Any:
    """Whether u <= exp(scaled - bound). Half the word: signed integers become floats in one instruction everywhere."""
    return np.float32(np.int32(word >> np.uint32(1))) * _HALF_WORD_UNIT <= exponential * factor


@_part
def _count_that_may_win(words_N: _Bits, exponentials_N: _Floats, factor: Any) -> int:
    count = 0
    for i in range(exponentials_N.size):
        count += _may_win(words_N[i], exponentials_N[i], factor)
    return count


@_part
def _scan(start: int, scaled_N: _Floats, words_N: _Bits, exponentials_N: _Floats, factor: Any, found: _Found) -> _Found:
    """What a block adds to the two best."""
    token, best, second = found
    for i in range(scaled_N.size):
        if _may_win(words_N[i], exponentials_N[i], factor):
            score = scaled_N[i] + gumbel(words_N[i])
            if score > best:
                token, best, second = start + i, score, best
            elif score > second:
                second = score
    return token, best, second


@_part
def _row(scaled_V: _Floats, place: _Quad) -> tuple[_Found, Any, float]:
    """The two best of a row; its greatest value, and log of the sum of exp(scaled - greatest)."""
    words_N = np.empty(_BLOCK, dtype=np.uint32)
    powers_N, exponentials_N = np.empty(_BLOCK, dtype=np.float32), np.empty(_BLOCK, dtype=np.float32)
    top = _greatest_below(scaled_V, _INFINITY)
    equal = _count_equal(scaled_V, top)
    base = top if equal > _ONE else _greatest_below(scaled_V, top)
    bound = base + _LEAST_NOISE  # two scores at least reach it
    found = (-1, -_INFINITY, -_INFINITY)
    others = 0.0
    for start in range(0, scaled_V.size, _BLOCK):
        scaled_N = scaled_V[start : start + _BLOCK]
        here_N = exponentials_N[: scaled_N.size]
        others += _fill_exponentials(scaled_N, base, top, powers_N, here_N)
        _fill_words(start // 4, place, words_N)
        factor = _factor(base, max(bound, found[2]))
        if _count_that_may_win(words_N, here_N, factor) > 0:
            found = _scan(start, scaled_N, words_N, here_N, factor, found)
    others *= math.exp(np.float64(base) - np.float64(top))
    return found, top, math.log1p(np.float64(equal - _ONE) + others)


def _all_rows(
    patterns_BV: npt.NDArray[Any],
    shift: Any,
    temperature: Any,
    places_B4: _Bits,
    tokens_B: npt.NDArray[np.int64],
    result_B4: _Floats,
) -> None:
    """Fills `result_B4` (logprobs, best, second, own) and those tokens that are -1; NaN where a logit is not finite.

    `patterns_BV` shifted left by `shift` bits are float32s.
    """
    scaled_V = np.empty(patterns_BV.shape[1], dtype=np.float32)
    for b in range(patterns_BV.shape[0]):
        if not _fill_scaled(patterns_BV[b], shift, temperature, scaled_V):
            result_B4[b] = np.nan
            continue
        t, rollout = np.uint64(places_B4[b, 0]), np.uint64(places_B4[b, 1])
        place = (t, rollout, np.uint64(places_B4[b, 2]), np.uint64(places_B4[b, 3]))
        (winner, best, second), top, normaliser = _row(scaled_V, place)
        token = winner if tokens_B[b] < 0 else tokens_B[b]
        tokens_B[b] = token
        result_B4[b, 0] = (np.float64(scaled_V[token]) - np.float64(top)) - normaliser
        result_B4[b, 1] = best
        result_B4[b, 2] = second
        result_B4[b, 3] = _score(scaled_V, token, place)


@functools.cache
def all_rows(pattern: str) -> Callable[..., None]:
    """`_all_rows` for patterns "uint16" or "uint32", compiled in seconds, or read where that was kept; holds no lock.

    Code is kept unless no folder for it can be written, its disk is full, or what is there is no code.
    """
    patterns_BV, places_B4 = (Array(getattr(numba, name), 2, "C", readonly=True) for name in (pattern, "uint32"))
    result_B4, tokens_B = Array(numba.float32, 2, "C"), Array(numba.int64, 1, "C")
    signature = numba.void(patterns_BV, numba.uint32, numba.float32, places_B4, tokens_B, result_B4)
    made: Callable[..., None]
    try:
        made = numba.njit(signature, nogil=True, cache=True)(_all_rows)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
        made = numba.njit(signature, nogil=True)(_all_rows)
    return made
