"""Building TOPLOC proofs from hidden states. Byte for byte what the reference library builds.

Letters: T tokens, R rows of one chunk (at most 32), H hidden size, C chunks, K points (128).
Source: TOPLOC 0.1.6, arXiv 2501.16007. The reference leaves ties at the 128th place to its sorting library; here the
lowest flat index wins, so that bytes are unique. Infinity and NaN are refused: they come from a broken model or engine,
their order is undefined, and some NaNs do not fit the field.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hashing.encoding import CHUNK, MIN_MODULUS, PRIME, TOP_K, Proof
from hashing.errors import ChunkTooSmall, NoModulus, NonFinite
from hashing.polynomial import interpolate

Bits = npt.NDArray[np.uint16]  # bfloat16 bit patterns

SIGN = 0x8000
EXPONENT = 0x7F80
MANTISSA = 0x007F


def build_proof(bits_RH: Bits) -> Proof:
    """The proof of one chunk of at most 32 hidden states.

    Raises:
        ChunkTooSmall: fewer than 128 values. NonFinite: NaN or infinity among them.
        NoModulus: the largest values' positions collide under every permitted modulus.
    """
    return _build([bits_RH])[0]


def build_proofs(bits_TH: Bits) -> tuple[bytes, ...]:
    """One proof of 258 bytes per started chunk of 32 of the T rows; none for no rows.

    Raises: as `build_proof`.
    """
    return tuple(proof.encode() for proof in _build(list(chunks(bits_TH))))


def chunks(bits_TH: Bits) -> Iterator[Bits]:
    """The rows in chunks of 32; the last may be short."""
    for start in range(0, len(bits_TH), CHUNK):
        yield bits_TH[start : start + CHUNK]


def largest(bits_RH: Bits) -> npt.NDArray[np.int64]:
    """Flat indices (K,), ascending, of the 128 largest magnitudes; ties at the last place go to the lowest index.

    Raises:
        ChunkTooSmall: fewer than 128 values. NonFinite: NaN or infinity among them.
    """
    magnitude = bits_RH.reshape(-1) & ~np.uint16(SIGN)  # orders finite values as their magnitudes do
    if magnitude.size < TOP_K:
        raise ChunkTooSmall(f"chunk of {magnitude.size} values: a proof needs at least {TOP_K}")
    if int(magnitude.max()) >= EXPONENT:
        raise NonFinite("hidden states hold NaN or infinity")
    last = np.partition(magnitude, -TOP_K)[-TOP_K]
    above = np.flatnonzero(magnitude > last)
    tied = np.flatnonzero(magnitude == last)[: TOP_K - above.size]
    return np.sort(np.concatenate([above, tied]))


def _build(parts: list[Bits]) -> list[Proof]:
    if not parts:
        return []
    places = [largest(part) for part in parts]
    moduli = [_modulus(index_K) for index_K in places]
    x_CK = np.stack([index_K % modulus for index_K, modulus in zip(places, moduli, strict=True)])
    y_CK = np.stack([part.reshape(-1)[index_K] for part, index_K in zip(parts, places, strict=True)]).astype(np.int64)
    rows = interpolate(x_CK, y_CK).tolist()
    return [Proof(modulus, tuple(row)) for modulus, row in zip(moduli, rows, strict=True)]


def _modulus(index_K: npt.NDArray[np.int64]) -> int:
    """The largest permitted modulus under which all positions stay distinct."""
    for modulus in range(PRIME, MIN_MODULUS - 1, -1):
        if np.unique(index_K % modulus).size == index_K.size:
            return modulus
    raise NoModulus(f"positions collide under every modulus from {MIN_MODULUS} to {PRIME}")
