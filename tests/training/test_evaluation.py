import pytest

from node.training.evaluation import accuracy


def test_the_error_is_clustered_by_question():
    # means 1, 0.5, 0: mean 0.5, variance of the means 0.25, error sqrt(0.25 / 3).
    found = accuracy([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])

    assert (found.mean, found.prompts, found.samples) == (0.5, 3, 4)
    assert found.standard_error == pytest.approx(0.28867513)


def test_one_question_has_no_error_bar():
    with pytest.raises(ValueError, match="two questions"):
        accuracy([[1.0, 0.0]])
