"""Comparing a TOPLOC proof with hidden states computed again. Measures; what is too far is for the caller to say.

Differs from the reference on purpose: the modulus is always applied (its list path forgets it, so honest proofs fail),
signs are counted (it ignores them), and a wrong count or shape of proofs is an error (it reads past the end, or checks
only those that are there).

Letters as in `hashing.proof`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hashing.encoding import Proof
from hashing.errors import MalformedProof
from hashing.polynomial import Field, evaluate
from hashing.proof import EXPONENT, MANTISSA, SIGN, Bits, chunks, largest


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a proof is from the states, over the 128 largest values of the states.

    exponent_mismatches: values whose exponent differs. mantissa_mean, mantissa_median (the upper one): of |difference|
    of the 7-bit mantissas where exponents agree; infinite where none does. sign_mismatches: values whose exponent
    agrees and sign differs, so that the sum of both counts is at most 128.
    """

    exponent_mismatches: int
    mantissa_mean: float
    mantissa_median: float
    sign_mismatches: int


def compare(proof: Proof, bits_RH: Bits) -> Distance:
    """Distance of `proof` from one chunk of states.

    Raises:
        ChunkTooSmall: fewer than 128 values. NonFinite: NaN or infinity among the states (never among the proof's).
    """
    return _compare([proof], [bits_RH])[0]


def compare_all(proofs: Sequence[bytes], bits_TH: Bits) -> tuple[Distance, ...]:
    """Distances of the encoded `proofs` from each chunk of 32 of the T rows.

    Raises:
        MalformedProof: not one proof per started chunk, or one that does not parse.
        ChunkTooSmall, NonFinite: as `compare`.
    """
    parts = list(chunks(bits_TH))
    if len(proofs) != len(parts):
        raise MalformedProof(f"{len(proofs)} proofs for {len(parts)} chunks")
    return tuple(_compare([Proof.parse(proof) for proof in proofs], parts))


def _compare(proofs: Sequence[Proof], parts: Sequence[Bits]) -> list[Distance]:
    if not parts:
        return []
    places = [largest(part) for part in parts]
    own_CK = np.stack([part.reshape(-1)[index_K] for part, index_K in zip(parts, places, strict=True)])
    x_CK = np.stack([index_K % proof.modulus for index_K, proof in zip(places, proofs, strict=True)])
    claimed_CK = evaluate(np.array([proof.coefficients for proof in proofs], dtype=np.int64), x_CK)
    pairs = zip(own_CK.astype(np.int64), claimed_CK, strict=True)
    return [_distance(own_K, claimed_K) for own_K, claimed_K in pairs]


def _distance(own_K: Field, claimed_K: Field) -> Distance:
    differing_K = own_K ^ claimed_K
    agree_K = (differing_K & EXPONENT) == 0
    errors = np.sort(np.abs((own_K & MANTISSA) - (claimed_K & MANTISSA))[agree_K])
    return Distance(
        exponent_mismatches=int(agree_K.size - errors.size),
        mantissa_mean=float(errors.mean()) if errors.size else math.inf,
        mantissa_median=float(errors[errors.size // 2]) if errors.size else math.inf,
        sign_mismatches=int(np.count_nonzero(agree_K & ((differing_K & SIGN) != 0))),
    )
