"""Proofs against those of the reference library, and what it leaves open: ties, short chunks, infinities."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hashing.comparison import compare_all
from hashing.encoding import Proof
from hashing.errors import ChunkTooSmall, NoModulus, NonFinite
from hashing.proof import build_proof, build_proofs, largest

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "toploc_reference.json").read_text())[
    "cases"
]


def recipe_outputs(seed: int, count: int) -> list[int]:
    outputs = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        outputs.append(seed >> 33)
    return outputs


def recipe_chunk(rows: int, hidden: int, seed: int) -> npt.NDArray[np.uint16]:
    n = rows * hidden
    bits = [(((r >> 20) & 1) << 15) | (0x3C00 + r % 64) for r in recipe_outputs(seed, n)]
    seen: dict[int, None] = dict.fromkeys(v % n for v in recipe_outputs(seed + 1, 4000))
    for k, place in enumerate(list(seen)[:200]):
        bits[place] = (bits[place] & 0x8000) | (0x3F80 + 3 * k)
    return np.array(bits, dtype=np.uint16).reshape(rows, hidden)


def recipe(case: dict[str, Any]) -> npt.NDArray[np.uint16]:
    """Hidden states as the vectors' own text describes them."""
    starts = range(0, case["rows"], 32)
    return np.concatenate(
        [
            recipe_chunk(min(32, case["rows"] - start), case["hidden"], case["seed"] + 7919 * c)
            for c, start in enumerate(starts)
        ]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['rows']}x{case['hidden']}")
def test_proofs_and_figures_equal_the_reference_librarys(case: dict[str, Any]) -> None:
    states = recipe(case)

    proofs = build_proofs(states)

    assert [proof.hex() for proof in proofs] == case["proofs"]
    assert [hashlib.sha256(proof).hexdigest() for proof in proofs] == case["sha256"]
    for verify in case["verify"]:
        changed = states.reshape(-1).copy()
        changed[::3] ^= np.uint16(verify["xor_every_third"])
        distances = compare_all(proofs, changed.reshape(states.shape))
        assert [
            {
                "exp_mismatches": d.exponent_mismatches,
                "mant_err_mean": d.mantissa_mean,
                "mant_err_median": d.mantissa_median,
            }
            for d in distances
        ] == verify["results"]
        assert all(d.sign_mismatches == 0 for d in distances)


def test_one_chunk_is_proved_as_among_others() -> None:
    states = recipe_chunk(32, 1024, 7)

    assert build_proof(states).encode() == build_proofs(states)[0]


def test_ties_at_the_last_place_go_to_the_lowest_index() -> None:
    states = np.full((2, 100), 0x3F80, dtype=np.uint16)  # 200 ones
    states[1, 90:] = 0x4000  # and ten twos, at 190 to 199

    assert largest(states).tolist() == [*range(118), *range(190, 200)]


def test_a_negative_value_ranks_by_its_magnitude() -> None:
    states = np.zeros((1, 200), dtype=np.uint16)
    states[0, 60:188] = 0xBF80  # 128 times -1

    assert largest(states).tolist() == list(range(60, 188))


def test_there_is_a_proof_for_every_started_chunk() -> None:
    states = np.random.default_rng(0).integers(0, 0x7F80, (65, 128)).astype(np.uint16)

    assert [len(build_proofs(states[:rows])) for rows in (0, 1, 32, 33, 64, 65)] == [0, 1, 1, 2, 2, 3]


def test_a_chunk_is_refused_when_it_has_fewer_than_128_values() -> None:
    with pytest.raises(ChunkTooSmall, match="127"):
        build_proof(np.zeros((1, 127), dtype=np.uint16))
    assert isinstance(build_proof(np.zeros((1, 128), dtype=np.uint16)), Proof)


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7F81])
def test_states_are_refused_when_one_is_infinite_or_no_number(bits: int) -> None:
    states = recipe_chunk(16, 896, 3)
    states[7, 100] = bits

    with pytest.raises(NonFinite):
        build_proofs(states)


def test_the_largest_finite_value_is_proved() -> None:
    states = recipe_chunk(16, 896, 3)
    states[7, 100] = 0xFF7F

    assert compare_all(build_proofs(states), states)[0].exponent_mismatches == 0


def test_the_modulus_steps_down_when_two_positions_collide() -> None:
    states = np.zeros((32, 5120), dtype=np.uint16)
    flat = states.reshape(-1)
    flat[1000:1126] = 0x3F80
    flat[5] = flat[5 + 65497] = 0x4000  # 5 and 65502 are equal modulo 65497 and differ modulo 65496

    assert build_proof(states).modulus == 65496


def test_no_proof_is_made_when_no_modulus_tells_positions_apart() -> None:
    states = np.zeros((32, 5120), dtype=np.uint16)
    flat = states.reshape(-1)
    flat[:64] = 0x3F80  # differences between the two halves cover 65000 to 65497
    flat[65000:65500:8] = 0x3F80
    flat[65500] = 0x3F80

    with pytest.raises(NoModulus):
        build_proof(states)
