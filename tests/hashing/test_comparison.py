"""Distances between proofs and states, with figures worked out by hand."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from hashing.comparison import Distance, compare, compare_all
from hashing.encoding import Proof
from hashing.errors import ChunkTooSmall, MalformedProof, NonFinite
from hashing.proof import build_proof, build_proofs


def states(rows: int = 32, hidden: int = 256, seed: int = 0) -> npt.NDArray[np.uint16]:
    """Bell-shaped values as bfloat16 patterns (the upper halves of float32s)."""
    values = np.random.default_rng(seed).standard_normal((rows, hidden)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def one_row() -> npt.NDArray[np.uint16]:
    """128 values and nothing else: every one of them is among the largest. Mantissa 64 throughout."""
    return np.full((1, 128), 0x3F80 + 64, dtype=np.uint16)


def test_a_proof_is_at_no_distance_from_its_own_states() -> None:
    assert compare(build_proof(states()), states()) == Distance(0, 0.0, 0.0, 0)


def test_mantissa_errors_are_averaged_and_their_upper_median_taken() -> None:
    proof, changed = build_proof(one_row()), one_row()
    changed[0, :63] += 3
    changed[0, 63] -= 1  # sorted errors: 64 zeros, one 1, 63 threes; the one at index 64 is 1

    assert compare(proof, changed) == Distance(0, (63 * 3 + 1) / 128, 1.0, 0)


def test_a_sign_flip_is_counted_apart_from_exponents() -> None:
    proof, changed = build_proof(one_row()), one_row()
    changed[0, :40] ^= 0x8000

    assert compare(proof, changed) == Distance(0, 0.0, 0.0, 40)


def test_a_value_with_another_sign_and_exponent_is_counted_once() -> None:
    proof, changed = build_proof(one_row()), one_row()
    changed[0, :10] ^= 0x8080

    assert compare(proof, changed) == Distance(10, 0.0, 0.0, 0)


def test_mantissa_figures_are_infinite_when_no_exponent_agrees() -> None:
    distance = compare(build_proof(one_row()), one_row() ^ np.uint16(0x0080))

    assert distance == Distance(128, math.inf, math.inf, 0)


def test_unrelated_states_are_far_away() -> None:
    distance = compare(build_proof(states(seed=1)), states(seed=2))

    assert distance.exponent_mismatches + distance.sign_mismatches > 100


def test_the_modulus_is_applied_when_it_is_not_the_prime() -> None:
    wide = states(32, 5120)
    flat = wide.reshape(-1)
    flat[5] = flat[5 + 65497] = 0x7F00  # among the largest, and equal modulo 65497

    proof = build_proof(wide)

    assert proof.modulus < 65497
    assert compare(proof, wide) == Distance(0, 0.0, 0.0, 0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_proofs_than_chunks_is_malformed(count: int) -> None:
    two_chunks = states(33)
    proofs = (*build_proofs(two_chunks), build_proofs(two_chunks)[0])

    with pytest.raises(MalformedProof, match=f"{count} proofs for 2 chunks"):
        compare_all(proofs[:count], two_chunks)


@pytest.mark.parametrize("bad", [b"", b"\xff\xd9", bytes(258), b"\xff" * 258, bytes(259)])
def test_a_proof_that_crashes_the_reference_is_malformed(bad: bytes) -> None:
    with pytest.raises(MalformedProof):
        compare_all([bad], states())


def test_each_chunk_is_compared_with_its_own_proof() -> None:
    rows = states(70)
    proofs = build_proofs(rows)
    changed = rows.copy()
    changed[32:64] ^= 0x8000

    distances = compare_all(proofs, changed)

    assert [d.sign_mismatches for d in distances] == [0, 128, 0]


def test_no_rows_and_no_proofs_have_no_distance() -> None:
    assert compare_all([], np.zeros((0, 256), dtype=np.uint16)) == ()


def test_own_states_are_refused_when_they_are_no_numbers() -> None:
    broken = states()
    broken[3, 3] = 0x7FC0

    with pytest.raises(NonFinite):
        compare_all(build_proofs(states()), broken)


def test_own_states_are_refused_when_they_are_too_few() -> None:
    with pytest.raises(ChunkTooSmall):
        compare(build_proof(states()), states(1, 64))


def test_a_proof_that_claims_infinities_differs_in_every_exponent() -> None:
    constant = Proof(65497, (0x7F80, *[0] * 127))

    assert compare(constant, states()).exponent_mismatches == 128
