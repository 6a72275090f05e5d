"""The 258 bytes of a TOPLOC proof, and the strict reading of them. Says nothing about whether a proof fits a model.

Source: TOPLOC 0.1.6 (arXiv 2501.16007): uint16 modulus || 128 uint16 coefficients, all big-endian. Stricter than the
reference, which divides by a modulus of 0 and reads past short proofs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hashing.errors import MalformedProof

PRIME = 65497  # the largest prime whose residues hold every finite bfloat16 pattern (0xFFD9 and up are NaNs)
TOP_K = 128  # values per chunk, the paper's choice
CHUNK = 32  # hidden states per proof, the paper's choice
MIN_MODULUS = 65000  # an honest modulus is within a few of PRIME; a small one folds all positions onto a few points
PROOF_BYTES = 2 + 2 * TOP_K

_LAYOUT = struct.Struct(f">{1 + TOP_K}H")


@dataclass(frozen=True, slots=True)
class Proof:
    """The polynomial over GF(65497) through (position mod modulus, bit pattern) of a chunk's largest values.

    coefficients: ascending powers, `TOP_K` of them, each below `PRIME`.

    Raises:
        MalformedProof: a number out of range, or another count of coefficients.
    """

    modulus: int
    coefficients: tuple[int, ...]

    def __post_init__(self) -> None:
        if not MIN_MODULUS <= self.modulus <= PRIME:
            raise MalformedProof(f"modulus {self.modulus} is outside {MIN_MODULUS} to {PRIME}")
        if len(self.coefficients) != TOP_K:
            raise MalformedProof(f"{len(self.coefficients)} coefficients instead of {TOP_K}")
        if max(self.coefficients) >= PRIME or min(self.coefficients) < 0:
            raise MalformedProof(f"a coefficient is outside 0 to {PRIME - 1}")

    @classmethod
    def parse(cls, data: bytes) -> Proof:
        """The proof in `data`; the reference's null proof (modulus 0) is refused like any other small modulus.

        Raises:
            MalformedProof: not exactly 258 bytes, or a number out of range.
        """
        if len(data) != PROOF_BYTES:
            raise MalformedProof(f"proof of {len(data)} bytes instead of {PROOF_BYTES}")
        modulus, *coefficients = _LAYOUT.unpack(data)
        return cls(modulus, tuple(coefficients))

    def encode(self) -> bytes:
        """The 258 bytes that `parse` reads."""
        return _LAYOUT.pack(self.modulus, *self.coefficients)
