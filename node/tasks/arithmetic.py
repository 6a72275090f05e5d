"""Sums and differences of small numbers, as the `chain_sum` of reasoning-gym puts them."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from node.errors import SpecMismatch
from node.rollouts.rollout import FINISH_EOS
from node.tasks.base import Item, Tokenizer
from node.tasks.environment import Environment, TaskSettings

SYSTEM = "You are a calculator."
NUMBER = re.compile(r"-?[0-9]+")  # ASCII: what counts as a digit elsewhere depends on the version of Python


class ArithmeticSettings(TaskSettings):
    """Which questions there are. 2 terms of 1 digit make 200; 4,096 draws miss one of them once in 10^6 seeds."""

    terms: Annotated[int, Field(ge=1, le=16)] = 2
    digits: Annotated[int, Field(ge=1, le=9)] = 1
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    draws: Annotated[int, Field(ge=1, le=2**16)] = 4096  # how many items of the package's data set are looked at
    held_out: Annotated[int, Field(ge=0, le=2**16)] = 64


class Arithmetic:
    """Distinct questions in the order in which the data set first asks them; the first `held_out` are set apart.

    Reward: 1 if the last number of the answer is the right one and the answer ended by itself, else 0. Without the
    second half a truncated answer counts, and runs drift there.
    """

    def __init__(self, settings: ArithmeticSettings, tokenizer: Tokenizer, fuel_limit: int) -> None:
        questions = list(_questions(settings).items())
        if len(questions) <= settings.held_out:
            raise SpecMismatch(f"config, held_out: {settings.held_out} of only {len(questions)} questions")
        items = [Item(_prompt(question, tokenizer), answer) for question, answer in questions]
        self._held_out = tuple(items[: settings.held_out])
        self._items = tuple(items[settings.held_out :])
        self._tokenizer = tokenizer
        self._fuel_limit = fuel_limit

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    @property
    def held_out(self) -> Sequence[Item]:
        return self._held_out

    def score(self, item: Item, output_ids: Sequence[int], finish: int) -> float:
        """0 or 1. Only the last `fuel_limit` characters are looked at: the answer's last number is there."""
        if finish != FINISH_EOS:
            return 0.0
        text = self._tokenizer.decode(output_ids)
        numbers = NUMBER.findall(text[-self._fuel_limit :])
        return 1.0 if numbers and numbers[-1] == item.answer else 0.0


def _prompt(question: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    return tokenizer.chat([("system", SYSTEM), ("user", question)])


def _questions(settings: ArithmeticSettings) -> dict[str, str]:
    """Answer by question. Each item of the data set has a generator of its own, seeded by seed + index."""
    import reasoning_gym

    dataset = reasoning_gym.create_dataset(
        "chain_sum",
        min_terms=settings.terms,
        max_terms=settings.terms,
        min_digits=settings.digits,
        max_digits=settings.digits,
        seed=settings.seed,
        size=settings.draws,
    )
    answers: dict[str, str] = {}
    for index in range(settings.draws):
        entry = dataset[index]
        answers.setdefault(str(entry["question"]), str(entry["answer"]))
    return answers


ARITHMETIC = Environment(version=1, scorer_version=1, fuel_limit=1024, settings=ArithmeticSettings, build=Arithmetic)
