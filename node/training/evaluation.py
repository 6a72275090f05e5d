"""How good a model is on fixed questions, with an error bar. Arithmetic only: the caller brings the scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Accuracy:
    """mean score, and its standard error clustered by question: answers to one question are not independent."""

    mean: float
    standard_error: float
    prompts: int
    samples: int


def accuracy(scores: Sequence[Sequence[float]]) -> Accuracy:
    """Of `scores`, one row of equally many per question.

    The error is that of the mean of the questions' means, as if questions were drawn from many like them.

    Source: E. Miller, "Adding Error Bars to Evals", arXiv 2411.00640.

    Raises: ValueError: fewer than two questions, or rows of different lengths.
    """
    table = np.array(scores, dtype=np.float64)
    if table.ndim != 2 or len(table) < 2 or not table.shape[1]:
        raise ValueError(f"scores of shape {table.shape}: two questions or more with an answer are needed")
    means = table.mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(len(means))
    return Accuracy(float(means.mean()), float(error), len(means), table.shape[1])
