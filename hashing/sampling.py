"""The noise of a sampled token: Philox4x32-10 words, and Gumbel noise made of them, the same on every device.

A counter-based generator has no state: the noise of (rollout, position, token id) can be computed anywhere, in any
order. Integers are exact; floats agree to 1e-5, so that a sampled token can be checked without the sampler's machine.

Letters: B rows of a batch, V vocabulary, N = ceil(V / 4) counters of a row.
Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11), and Random123; protocol, "Seeds, prompts,
noise, audit draw, units".
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hashing.errors import OutOfRange
from hashing.words import digest

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # Random123, philox.h: PHILOX_M4x32_0 and _1
WEYL = (0x9E3779B9, 0xBB67AE85)  # Random123, philox.h: PHILOX_W32_0 and _1
NOISE_STREAM = 1  # the counter's last word; prompts use 0

_MASK = 0xFFFFFFFF
_BLOCK = 1 << 14  # counters at a time: what they need stays in a core's second-level cache

Counter = tuple[int, int, int, int]
Key = tuple[int, int]
Places = npt.NDArray[np.uint32]  # (B, 4): position, rollout and two key words, for each row of a batch
Words = npt.NDArray[np.uint64]  # values below 2^32, in wide lanes for their products


def key_of(seed: bytes) -> Key:
    """The Philox key of a slot: the first eight bytes of its seed, as two little-endian words.

    Raises:
        OutOfRange: the seed is not 32 bytes.
    """
    seed = digest(seed)
    return int.from_bytes(seed[:4], "little"), int.from_bytes(seed[4:8], "little")


def philox(counter: Counter, key: Key) -> Counter:
    """Philox4x32-10 of one counter, words in Random123's order v[0] to v[3].

    Raises:
        OutOfRange: a word that is no uint32.
    """
    if not all(0 <= word <= _MASK for word in (*counter, *key)):
        raise OutOfRange(f"counter {counter} or key {key} is not made of uint32s")
    c0, c1, c2, c3 = counter
    for k0, k1 in _round_keys(key):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
    return c0, c1, c2, c3


def places(keys: Sequence[Key], rollouts: Sequence[int], positions: Sequence[int]) -> Places:
    """Where the noise of a batch's rows is, of one seed or of several: row b is that of position `positions[b]` of row
    `rollouts[b]` of the slot with `keys[b]`.

    Raises:
        OutOfRange: lengths differ, or a number is no uint32.
    """
    columns = (positions, rollouts, [k0 for k0, _ in keys], [k1 for _, k1 in keys])
    if len({len(column) for column in columns}) != 1:
        raise OutOfRange(f"{len(keys)} keys, {len(rollouts)} rollouts, {len(positions)} positions")
    return np.concatenate([_column(column) for column in columns], axis=1).astype(np.uint32)


def noise(seed: bytes, rollouts: Sequence[int], positions: Sequence[int], vocabulary: int) -> npt.NDArray[np.float32]:
    """Gumbel noise (B, V): row b is that of output position `positions[b]` of row `rollouts[b]` of the slot.

    Within 1e-5 of `gumbel_reference`, the largest and smallest words included.

    Raises:
        OutOfRange: the seed is not 32 bytes, lengths differ, or a number is no uint32.
    """
    key = key_of(seed)
    columns = [_column(positions), _column(rollouts)]
    if len(columns[0]) != len(columns[1]) or not 1 <= vocabulary <= 1 << 32:
        raise OutOfRange(f"{len(columns[0])} positions, {len(columns[1])} rollouts, vocabulary {vocabulary}")
    quads = -(-vocabulary // 4)
    result = np.empty((len(rollouts), quads, 4), dtype=np.float32)
    rows = max(1, _BLOCK // min(quads, _BLOCK))
    for top in range(0, len(rollouts), rows):
        t_B1, rollout_B1 = (column[top : top + rows] for column in columns)
        for left in range(0, quads, _BLOCK):
            quad_1N = np.arange(left, min(left + _BLOCK, quads), dtype=np.uint64)[None, :]
            words = _philox_grid(quad_1N, t_B1, rollout_B1, key)
            for word, words_BN in enumerate(words):
                result[top : top + rows, left : left + _BLOCK, word] = _gumbel(words_BN.astype(np.uint32))
    return result.reshape(len(rollouts), 4 * quads)[:, :vocabulary]


def gumbel_reference(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """Gumbel noise of Philox words, any shape, in float64: the definition that all devices approximate.

    u = (w + 1/2) 2^-32, exact; E = -log1p(-u); G = -log E.
    """
    u = (words.astype(np.float64) + 0.5) * 2.0**-32
    gumbel: npt.NDArray[np.float64] = -np.log(-np.log1p(-u))
    return gumbel


def _gumbel(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """As `gumbel_reference`, in float32 throughout.

    log1p(-u) is -u log(v) / (v - 1) with v = 1 - u, which forgives rounding v (Higham, "Accuracy and Stability of
    Numerical Algorithms", section 1.14.1). v comes from the complement of the word, for u itself rounds to 1 near 1;
    and v is kept below 1, where the quotient goes to 1.
    """
    u = words.astype(np.float32)
    u += np.float32(0.5)
    u *= np.float32(2.0**-32)
    v = np.invert(words).astype(np.float32)
    v += np.float32(0.5)
    v *= np.float32(2.0**-32)
    np.minimum(v, np.float32(1 - 2.0**-24), out=v)
    u *= np.log(v)
    v -= np.float32(1)
    u /= v
    np.log(u, out=u)
    return np.negative(u, out=u)


def _philox_grid(quad_1N: Words, t_B1: Words, rollout_B1: Words, key: Key) -> tuple[Words, Words, Words, Words]:
    """Words of the counters (quad, t, rollout, 1). Broadcasting keeps the first two rounds off the full grid."""
    c0, c1, c2, c3 = quad_1N, t_B1, rollout_B1, np.array([[NOISE_STREAM]], dtype=np.uint64)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    mask, half = np.uint64(_MASK), np.uint64(32)
    for k0, k1 in _round_keys(key):
        p0, p1 = c0 * m0, c2 * m1
        c0, c1 = (p1 >> half) ^ (c1 ^ np.uint64(k0)), p1 & mask
        c2, c3 = (p0 >> half) ^ (c3 ^ np.uint64(k1)), p0 & mask
    return c0, c1, c2, c3


def _round_keys(key: Key) -> list[Key]:
    return [((key[0] + i * WEYL[0]) & _MASK, (key[1] + i * WEYL[1]) & _MASK) for i in range(ROUNDS)]


def _column(values: Sequence[int]) -> Words:
    if values and not (min(values) >= 0 and max(values) <= _MASK):
        raise OutOfRange("a rollout or position is no uint32")
    return np.array(values, dtype=np.uint64)[:, None]
