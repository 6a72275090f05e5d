"""Every form of the seeded choice, compiled loops and torch, against noise and sums in plain numpy and float64."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing import device, fused, kernel
from hashing.errors import OutOfRange
from hashing.sampling import gumbel_reference, key_of, philox, places

Floats = npt.NDArray[np.float32]
SEEDS = [bytes([b]) * 32 for b in range(1, 6)]
KEYS = [key_of(seed) for seed in SEEDS]
ROLLOUTS = [0, 7, 31, 4, 2**32 - 1]
POSITIONS = [0, 3, 1000, 2**32 - 1, 1]
PLACES = places(KEYS, ROLLOUTS, POSITIONS)
Form = Callable[..., fused.RowScores]


def compiled(logits_BV: Floats, *others: Any) -> fused.RowScores:
    return fused.row_scores(logits_BV, *others)


def by_threads(logits_BV: Floats, *others: Any) -> fused.RowScores:
    return fused.row_scores(logits_BV, *others, threads=3)


def by_torch(
    logits_BV: Floats, places_B4: Any, temperature: float, tokens_B: npt.NDArray[np.int64] | None = None
) -> fused.RowScores:
    tokens = None if tokens_B is None else torch.from_numpy(tokens_B)
    scores = device.row_scores(torch.from_numpy(logits_BV), places_B4, temperature, tokens)
    return fused.RowScores(*(column.numpy() for column in scores))


@pytest.fixture(params=[compiled, by_threads, by_torch])
def row_scores(request: pytest.FixtureRequest) -> Form:
    form: Form = request.param
    return form


def expected_noise(vocabulary: int) -> npt.NDArray[np.float64]:
    """(5, V), a counter at a time."""
    words = [
        [philox((quad, t, rollout, 1), key) for quad in range(-(-vocabulary // 4))]
        for key, rollout, t in zip(KEYS, ROLLOUTS, POSITIONS, strict=True)
    ]
    return gumbel_reference(np.array(words, dtype=np.uint32).reshape(5, -1)[:, :vocabulary])


def require_alike(found: fused.RowScores, logits_BV: Floats, temperature: float, noise_BV: Any) -> None:
    """The reference in float64, of the tokens that were found. Scores are float32s, and off by their rounding."""
    scaled_BV = (logits_BV / np.float32(temperature)).astype(np.float64)
    scores_BV = scaled_BV + noise_BV
    rounding = 2e-5 + 2.0**-22 * np.abs(scores_BV).max()
    rows = np.arange(len(logits_BV))
    best_B2 = np.sort(scores_BV, axis=1)[:, :-3:-1]
    below_BV = scaled_BV - scaled_BV[rows, found.tokens][:, None]
    top_B1 = below_BV.max(axis=1, keepdims=True)
    normaliser_B = top_B1[:, 0] + np.log(np.exp(below_BV - top_B1).sum(axis=1))

    np.testing.assert_allclose(found.best, best_B2[:, 0], atol=rounding, rtol=0)
    np.testing.assert_allclose(found.second, best_B2[:, 1], atol=rounding, rtol=0)
    np.testing.assert_allclose(found.own, scores_BV[rows, found.tokens], atol=rounding, rtol=0)
    np.testing.assert_allclose(found.logprobs, -normaliser_B, rtol=1e-5, atol=1e-14)


@pytest.mark.parametrize("vocabulary", [2, 3, 257, 511, 512, 513, 4099])
@pytest.mark.parametrize("spread", [0.0, 1.0, 12.0])
def test_choices_are_those_of_plain_numpy(row_scores: Form, vocabulary: int, spread: float) -> None:
    logits_BV = np.random.default_rng(1).normal(size=(5, vocabulary)).astype(np.float32) * np.float32(spread)

    found = row_scores(logits_BV, PLACES, 0.7)

    require_alike(found, logits_BV, 0.7, expected_noise(vocabulary))
    assert (found.own == found.best).all()
    assert found.tokens.dtype == np.int64
    assert {column.dtype for column in found[1:]} == {np.dtype(np.float32)}


@settings(deadline=None, max_examples=25)
@given(
    spread=st.floats(-3, 6).map(lambda power: 10.0**power),
    offset=st.sampled_from([0.0, 50.0, -3e4]),
    temperature=st.floats(0.05, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_pruned_token_could_have_won(spread: float, offset: float, temperature: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits_BV = (random.standard_t(2, size=(5, 700)) * spread + offset).astype(np.float32)
    noise_BV = expected_noise(700)
    scores_BV = logits_BV / np.float32(temperature) + noise_BV.astype(np.float32)

    found = fused.row_scores(logits_BV, PLACES, temperature)

    assert (scores_BV.argmax(axis=1) == found.tokens).all()
    assert (np.sort(scores_BV, axis=1)[:, :-3:-1] == np.stack([found.best, found.second], axis=1)).all()


def test_given_tokens_are_weighed_instead_of_the_choice(row_scores: Form) -> None:
    logits_BV = np.random.default_rng(2).normal(size=(5, 1000)).astype(np.float32) * 4
    tokens_B = np.array([0, 999, 512, 511, 3])

    found = row_scores(logits_BV, PLACES, 1.5, tokens_B)

    assert (found.tokens == tokens_B).all()
    require_alike(found, logits_BV, 1.5, expected_noise(1000))


def test_the_lowest_index_is_chosen_on_exact_ties(row_scores: Form) -> None:
    """Floats of 2^32 are 512 apart, so that no noise shows."""
    logits_BV = np.zeros((5, 2000), dtype=np.float32)
    ties = [[3, 5], [700, 1999], [511, 512, 513], [0, 1], [1998, 1999]]
    for b, tied in enumerate(ties):
        logits_BV[b, tied] = 2.0**32

    found = row_scores(logits_BV, PLACES, 1.0)

    assert found.tokens.tolist() == [tied[0] for tied in ties]
    assert (found.best == found.second).all()


def test_bits_of_bfloat16_are_read_as_the_floats_that_they_are() -> None:
    logits_BV = torch.randn(5, 3001, generator=torch.Generator().manual_seed(3)).mul(5).to(torch.bfloat16)

    narrow = fused.row_scores(logits_BV.view(torch.int16).numpy().view(np.uint16), PLACES, 0.9)
    wide = fused.row_scores(logits_BV.float().numpy(), PLACES, 0.9)

    for here, there in zip(narrow, wide, strict=True):
        assert (here == there).all()


def test_logprobs_are_exact_next_to_zero_and_never_its_negative(row_scores: Form) -> None:
    logits_BV = np.full((5, 600), -20, dtype=np.float32)
    logits_BV[:, 77] = 20
    logits_BV[4] = -1000
    logits_BV[4, 77] = 1000

    found = row_scores(logits_BV, PLACES, 1.0)

    assert found.tokens.tolist() == [77] * 5
    np.testing.assert_allclose(found.logprobs[:4], -599 * np.exp(-40.0), rtol=1e-5)  # log1p(x) = x to 1e-15
    assert found.logprobs[4] == 0
    assert not np.signbit(found.logprobs[4])


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 3e38])
def test_a_row_is_nan_where_a_logit_is_not_finite_and_others_are_what_they_were(row_scores: Form, bad: float) -> None:
    logits_BV = np.random.default_rng(4).normal(size=(5, 900)).astype(np.float32)
    before = row_scores(logits_BV, PLACES, 0.5)
    logits_BV[2, 899] = bad  # 3e38 / 0.5 is too much for a float32

    after = row_scores(logits_BV, PLACES, 0.5)

    for was, is_now in zip(before[1:], after[1:], strict=True):
        assert np.isnan(is_now[2])
        assert (np.delete(was, 2) == np.delete(is_now, 2)).all()


def test_noise_of_the_smallest_and_largest_words_is_that_of_its_definition() -> None:
    words = np.concatenate([np.arange(1 << 12), 2**32 - 1 - np.arange(1 << 12), [2**31]]).astype(np.uint32)

    found = np.array([kernel.gumbel(word) for word in words])

    assert np.abs(found - gumbel_reference(words)).max() < 2e-6
    assert found.max() < 22.9
    assert found.min() > kernel._LEAST_NOISE


def test_noise_by_torch_is_that_of_its_definition_however_many_counters_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, parts = torch.zeros(5, 1003), torch.zeros(5, 1003)

    device.add_noise(whole, PLACES)
    monkeypatch.setattr(device, "_COUNTERS_AT_ONCE", 64)
    device.add_noise(parts, PLACES)

    np.testing.assert_allclose(whole, expected_noise(1003), atol=2e-6)
    assert torch.equal(whole, parts)


def test_first_argmax_takes_the_lowest_of_many_equal_values() -> None:
    scores = torch.zeros(4, 50_000)
    scores[:, 777:] = 1

    assert device.first_argmax(scores).tolist() == [777] * 4


def test_an_empty_batch_has_no_choices() -> None:
    found = fused.row_scores(np.empty((0, 8), dtype=np.float32), places([], [], []), 1.0)

    assert [column.shape for column in found] == [(0,)] * 5


@pytest.mark.parametrize(
    ("logits", "temperature", "tokens"),
    [
        (np.zeros((4, 8)), 1.0, None),
        (np.zeros((5, 1)), 1.0, None),
        (np.zeros((5, 8)), 0.0, None),
        (np.zeros((5, 8)), float("nan"), None),
        (np.zeros((5, 8)), 1.0, [0, 1, 2, 3]),
        (np.zeros((5, 8)), 1.0, [0, 1, 2, 3, 8]),
        (np.zeros((5, 8)), 1.0, [0, 1, 2, 3, -1]),
    ],
)
def test_scores_are_refused_when_an_argument_does_not_fit(
    logits: Any, temperature: float, tokens: list[int] | None
) -> None:
    with pytest.raises(OutOfRange):
        fused.row_scores(logits.astype(np.float32), PLACES, temperature, None if tokens is None else np.array(tokens))


CHOOSE = """
import numpy as np
from hashing import fused, sampling
print(fused.row_scores(np.zeros((2, 100), dtype=np.float32), sampling.places([(1, 2)] * 2, [0, 1], [0, 0]), 1.0).tokens)
"""


def test_logits_of_another_type_are_refused() -> None:
    with pytest.raises(OutOfRange):
        fused.row_scores(np.zeros((5, 8)), PLACES, 1.0)  # type: ignore[arg-type]


@pytest.mark.slow  # two compilations
@pytest.mark.parametrize("left", [0, 100])
def test_kept_code_that_is_damaged_is_compiled_again(tmp_path: Path, left: int) -> None:
    def choose() -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", CHOOSE]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    before = choose()
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in kept:
        path.write_bytes(path.read_bytes()[:left])

    assert len(kept) == 2
    assert choose() == before


def test_the_plain_noise_needs_neither_numba_nor_torch() -> None:
    code = "import hashing.sampling, sys; print([name for name in ('numba', 'torch') if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"
