"""Choices and evidence of the engines, with noise by the plain reference; sums by hand."""

import math

import numpy as np
import pytest
import torch

from hashing.sampling import key_of, noise, places
from node.engines.scoring import choose, choose_unchecked, weigh
from node.errors import EngineError

SEED = b"\x15" * 32
PLACES = places([key_of(SEED)] * 2, [4, 9], [0, 3])
NOISE = noise(SEED, [4, 9], [0, 3], 6)
LOGITS = torch.tensor([[2.0, 0.0, 1.0, 0.0, 0.0, 2.0], [0.0] * 6])
SCORES = LOGITS.numpy() / 2 + NOISE
NORMALISERS = [math.log(2 * math.e + math.exp(0.5) + 3), math.log(6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_choice_is_the_best_score(dtype: torch.dtype) -> None:
    choice = choose(LOGITS.to(dtype), PLACES, temperature=2.0)

    tokens = SCORES.argmax(axis=1).tolist()
    assert choice.tokens.tolist() == tokens
    assert choice.logprobs.tolist() == pytest.approx(
        [float(LOGITS[b, token]) / 2 - NORMALISERS[b] for b, token in enumerate(tokens)], rel=1e-6
    )


def test_evidence_is_the_gap_of_the_two_best_and_the_deficit_of_the_emitted() -> None:
    evidence = weigh(LOGITS, PLACES, torch.tensor([2, 5]), temperature=2.0)

    ordered = np.sort(SCORES, axis=1)
    assert evidence.gaps.tolist() == pytest.approx((ordered[:, -1] - ordered[:, -2]).tolist(), abs=2e-5)
    assert evidence.deficits.tolist() == pytest.approx((ordered[:, -1] - SCORES[[0, 1], [2, 5]]).tolist(), abs=2e-5)
    assert evidence.logprobs.tolist() == pytest.approx([0.5 - NORMALISERS[0], -NORMALISERS[1]], rel=1e-6)


def test_the_chosen_token_has_no_deficit() -> None:
    choice = choose(LOGITS, PLACES, 0.7)

    evidence = weigh(LOGITS, PLACES, choice.tokens, 0.7)

    assert evidence.deficits.tolist() == [0, 0]
    assert evidence.logprobs.tolist() == choice.logprobs.tolist()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_that_are_not_finite_are_an_error(bad: float, dtype: torch.dtype) -> None:
    broken = LOGITS.clone().to(dtype)
    broken[1, 5] = bad

    with pytest.raises(EngineError):
        choose(broken, PLACES, 1.0)
    with pytest.raises(EngineError):
        weigh(broken, PLACES, torch.tensor([0, 0]), 1.0)


def test_an_unchecked_choice_says_what_is_not_finite_and_stays_in_the_vocabulary() -> None:
    broken = LOGITS.clone()
    broken[0, 3] = float("nan")

    choice = choose_unchecked(broken, PLACES, 2.0)

    assert choice.logprobs.isnan().tolist() == [True, False]
    assert 0 <= int(choice.tokens[0]) < 6
    assert int(choice.tokens[1]) == SCORES[1].argmax()
