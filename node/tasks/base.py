"""The `Task` protocol: numbered prompts, and a score for an answer, the same on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt, in tokens as the model sees them, and what its scorer compares with."""

    prompt_ids: tuple[int, ...]
    answer: str


class Tokenizer(Protocol):
    """What tasks need of a model's tokenizer."""

    def chat(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """Token ids of (role, text) turns under the model's chat template, with the generation prompt."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""


class Task(Protocol):
    """Training items are numbered from 0; held-out ones apart, never drawn by a run."""

    @property
    def items(self) -> Sequence[Item]: ...
    @property
    def held_out(self) -> Sequence[Item]: ...

    def score(self, item: Item, output_ids: Sequence[int], finish: int) -> float:
        """Reward of an answer. Pure, bounded by the task's fuel limit, never raises on any tokens in the vocabulary."""
