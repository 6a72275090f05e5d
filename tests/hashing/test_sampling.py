"""Philox against Random123's published vectors; noise against its float64 definition and the protocol's example."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hashing import sampling
from hashing.errors import OutOfRange
from hashing.sampling import gumbel_reference, key_of, noise, philox, places

PROTOCOL: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "protocol1.json").read_text())
SEED = bytes.fromhex(PROTOCOL["expected"]["seed"][2:])
ONES = 0xFFFFFFFF

# Random123, examples/kat_vectors, lines "philox4x32 10": counter, key, expected words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox(counter, key) == expected


def test_the_key_is_the_seeds_first_two_little_endian_words() -> None:
    assert list(key_of(SEED)) == PROTOCOL["expected"]["philox_key"]


@pytest.mark.parametrize("example", PROTOCOL["expected"]["noise"])
def test_noise_equals_the_protocols_example(example: dict[str, Any]) -> None:
    token = example["id"]

    word = philox((token // 4, example["t"], example["rollout"], 1), key_of(SEED))[token % 4]
    row = noise(SEED, [example["rollout"]], [example["t"]], 49152)

    assert word == example["word"]
    assert gumbel_reference(np.array([word], dtype=np.uint32))[0] == pytest.approx(example["G"], abs=1e-14)
    assert row[0, token] == pytest.approx(example["G"], abs=1e-5)


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 257, 70_001])
def test_every_entry_is_that_of_its_own_counter(vocabulary: int) -> None:
    rollouts, positions = [0, 3, 2**32 - 1], [5, 0, 2**32 - 1]
    tokens = sorted({0, vocabulary // 2, vocabulary - 1})

    rows = noise(SEED, rollouts, positions, vocabulary)

    assert rows.shape == (3, vocabulary)
    assert rows.dtype == np.float32
    for b, (rollout, t) in enumerate(zip(rollouts, positions, strict=True)):
        words = [philox((i // 4, t, rollout, 1), key_of(SEED))[i % 4] for i in tokens]
        expected = gumbel_reference(np.array(words, dtype=np.uint32))
        np.testing.assert_allclose(rows[b, tokens], expected, atol=1e-5, rtol=0)


def test_a_batch_is_its_rows_one_by_one() -> None:
    rollouts, positions = list(range(40)), [7 * b for b in range(40)]

    batch = noise(SEED, rollouts, positions, 4099)

    for b in (0, 15, 39):
        assert (batch[b] == noise(SEED, [rollouts[b]], [positions[b]], 4099)[0]).all()


def test_float32_noise_is_within_1e_5_of_its_definition_for_extreme_words() -> None:
    near = np.arange(1 << 14, dtype=np.uint32)
    words = np.concatenate([near, ~near, near + np.uint32(2**31 - 2**13), np.arange(0, 2**32, 9973).astype(np.uint32)])

    error = np.abs(sampling._gumbel(words) - gumbel_reference(words))

    assert np.isfinite(error).all()
    assert error.max() < 1e-5


def test_noise_has_the_mean_and_variance_of_gumbels_distribution() -> None:
    rows = noise(SEED, list(range(8)), [0] * 8, 50_000)

    assert rows.mean() == pytest.approx(0.5772, abs=0.01)  # Euler's constant
    assert rows.var() == pytest.approx(1.6449, abs=0.02)  # pi^2 / 6


def test_an_empty_batch_has_no_rows() -> None:
    assert noise(SEED, [], [], 10).shape == (0, 10)


@pytest.mark.parametrize(
    ("rollouts", "positions", "vocabulary"), [([1], [1, 2], 8), ([-1], [0], 8), ([0], [2**32], 8), ([0], [0], 0)]
)
def test_noise_is_refused_when_a_number_does_not_fit(
    rollouts: list[int], positions: list[int], vocabulary: int
) -> None:
    with pytest.raises(OutOfRange):
        noise(SEED, rollouts, positions, vocabulary)


def test_places_have_a_row_of_position_rollout_and_key_each() -> None:
    rows = places([(1, 2), (3, 2**32 - 1)], [5, 6], range(7, 9))

    assert rows.dtype == np.uint32
    assert rows.tolist() == [[7, 5, 1, 2], [8, 6, 3, 2**32 - 1]]
    assert places([], [], []).shape == (0, 4)


@pytest.mark.parametrize(
    ("keys", "rollouts", "positions"), [([(0, 0)], [1], [1, 2]), ([(0, 2**32)], [0], [0]), ([(0, 0)], [0], [-1])]
)
def test_places_are_refused_when_a_number_does_not_fit(
    keys: list[tuple[int, int]], rollouts: list[int], positions: list[int]
) -> None:
    with pytest.raises(OutOfRange):
        places(keys, rollouts, positions)


def test_a_counter_is_refused_when_it_is_no_uint32() -> None:
    with pytest.raises(OutOfRange):
        philox((2**32, 0, 0, 0), (0, 0))
    with pytest.raises(OutOfRange):
        key_of(bytes(31))
