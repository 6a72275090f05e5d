"""Choices and evidence, by hand."""

import math

import pytest
import torch

from node.engines.scoring import choose, first_argmax, weigh
from node.errors import EngineError

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
NOISE = torch.tensor([[0.0, 1.5, 0.25], [0.5, 0.5, -1.0]])


def test_the_choice_is_the_best_score_and_the_lowest_index_on_ties() -> None:
    choice = choose(LOGITS, NOISE, temperature=2.0)  # scores 1, 1.5, 0.75 and 0.5, 0.5, -1

    assert choice.tokens.tolist() == [1, 0]
    assert choice.logprobs.tolist() == pytest.approx([0 - math.log(math.e + 1 + math.exp(0.5)), -math.log(3)], abs=1e-6)


def test_evidence_is_the_gap_of_the_two_best_and_the_deficit_of_the_emitted() -> None:
    evidence = weigh(LOGITS, NOISE, torch.tensor([2, 1]), temperature=2.0)

    assert evidence.gaps.tolist() == [0.5, 0.0]
    assert evidence.deficits.tolist() == [0.75, 0.0]
    assert evidence.logprobs.tolist() == pytest.approx(
        [0.5 - math.log(math.e + 1 + math.exp(0.5)), -math.log(3)], abs=1e-6
    )


def test_logits_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(EngineError):
        choose(torch.tensor([[0.0, float("nan")]]), torch.zeros(1, 2), 1.0)
    with pytest.raises(EngineError):
        choose(torch.tensor([[0.0, float("inf")]]), torch.zeros(1, 2), 1.0)


def test_first_argmax_takes_the_lowest_of_many_equal_values() -> None:
    scores = torch.zeros(4, 50_000)
    scores[:, 777:] = 1

    assert first_argmax(scores).tolist() == [777] * 4
