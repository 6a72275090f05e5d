from dataclasses import dataclass

import pytest

from node.rollouts.rollout import FINISH_EOS, Sample
from node.training.evaluation import accuracy, evaluate


@dataclass(frozen=True)
class Sum:
    prompt_ids: tuple[int, ...]
    answer: int


def test_the_error_is_clustered_by_question():
    # means 1, 0.5, 0: mean 0.5, variance of the means 0.25, error sqrt(0.25 / 3).
    found = accuracy([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])

    assert (found.mean, found.prompts, found.samples) == (0.5, 3, 4)
    assert found.standard_error == pytest.approx(0.28867513)


def test_answers_are_scored_against_their_own_question():
    def generate(seed, prompts, samples):
        assert (seed, prompts, samples) == (b"seed", [(1,), (2,)], 2)
        return [Sample((said,), (0.0,), (), FINISH_EOS) for said in (10, 11, 20, 20)]

    def score(question, output_ids, finish):
        return float(output_ids[0] == question.answer and finish == FINISH_EOS)

    found = evaluate(generate, [Sum((1,), 10), Sum((2,), 20)], score, samples=2, seed=b"seed")

    assert found.mean == 0.75
    assert found.standard_error == pytest.approx(0.25)  # means 0.5 and 1: deviation 0.3536, over sqrt(2)


def test_a_generator_that_loses_answers_is_an_error():
    with pytest.raises(ValueError, match="3 answers to 2 questions"):
        evaluate(lambda *_: [Sample((1,), (0.0,), (), 0)] * 3, [Sum((1,), 1), Sum((2,), 2)], lambda *_: 1.0, 2, b"")


def test_one_question_has_no_error_bar():
    with pytest.raises(ValueError, match="two questions"):
        accuracy([[1.0, 0.0]])
