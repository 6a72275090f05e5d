"""How good a model is on fixed questions, with an error bar. Arithmetic only: the caller brings what generates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from node.rollouts.rollout import Sample


class Question(Protocol):
    """What an evaluation needs to know of an item; the scorer knows the rest."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...


Q = TypeVar("Q", bound=Question)
# (seed, prompts, samples) -> `samples` answers to each prompt, those to one prompt next to each other.
Generate = Callable[[bytes, Sequence[tuple[int, ...]], int], Sequence[Sample]]
Scorer = Callable[[Q, Sequence[int], int], float]  # (question, output_ids, finish)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """mean score, and its standard error clustered by question: answers to one question are not independent."""

    mean: float
    standard_error: float
    prompts: int
    samples: int


def evaluate(generate: Generate, items: Sequence[Q], scorer: Scorer[Q], samples: int, seed: bytes) -> Accuracy:
    """Mean score of `samples` answers to each of `items` (two or more, for the error).

    Raises: ValueError: `generate` gave another number of answers.
    """
    answers = generate(seed, [item.prompt_ids for item in items], samples)
    if len(answers) != len(items) * samples:
        raise ValueError(f"{len(answers)} answers to {len(items)} questions, {samples} each")
    scores = [scorer(items[k // samples], answer.output_ids, answer.finish) for k, answer in enumerate(answers)]
    return accuracy([scores[k : k + samples] for k in range(0, len(scores), samples)])


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
