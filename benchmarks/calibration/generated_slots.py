"""Slots as a worker generates them, of the prompts that a calibration draws from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from node.engines.base import Engine, Policy
from node.engines.transformers import TransformersEngine
from node.launch import Preset, preset
from node.rollouts.rollout import Rollout, Sample
from node.tasks.base import Tokenizer
from node.tasks.taskset import Taskset, describe, load_tasks
from node.tasks.tokenizer import load_tokenizer

GROUPS = 4  # of one slot; rows of a group share their prompt
GROUP_SIZE = 8
LONG_TOKENS = 96  # of an answer to an open question: three whole chunks
QUESTIONS = (
    "Write a short story about a lighthouse keeper.", "Explain how a bicycle stays upright.",
    "List ten uses for a brick.", "What is the difference between weather and climate?",
    "Write a poem about autumn leaves.", "Describe the water cycle to a child.", "How does a refrigerator work?",
    "Write a dialogue between a cat and a dog.", "Write a Python function that reverses a string.",
    "Tell me about the planet Mars.", "What should I cook with rice and eggs?", "Explain compound interest.",
)  # fmt: skip

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts to draw from, and how long an answer may be. `folder` is the model's, for its EOS id."""

    name: str
    folder: Path
    prompts: tuple[Prompt, ...]
    max_output_tokens: int

    @property
    def policy(self) -> Policy:
        """At temperature 1."""
        eos = json.loads((self.folder / "generation_config.json").read_text())["eos_token_id"]
        return Policy(1.0, self.max_output_tokens, frozenset([eos]), GROUP_SIZE)

    def engine(self, weights: Path, threads: int) -> Engine:
        """An engine with `weights` loaded."""
        engine = TransformersEngine(self.policy, threads)
        engine.load(weights)
        return engine

    def slot(self, engine: Engine, seed: bytes) -> list[Rollout]:
        """One slot's rollouts; the seed draws the prompts too. Rewards are left at 0."""
        draws = [hashlib.sha256(seed + bytes([group])).digest() for group in range(GROUPS)]
        prompts = [self.prompts[int.from_bytes(draw[:8], "big") % len(self.prompts)] for draw in draws]
        return rollouts_of(prompts, engine.generate(seed, prompts, silent))


def workloads(model: str, folder: Path) -> list[Workload]:
    """The preset's own task, and for a model that can answer them, open questions with long answers."""
    chosen, tokenizer = preset(model), load_tokenizer(folder)
    tasks = tasks_of(chosen, tokenizer)
    prompts = tuple(tasks.item(index).prompt_ids for index in range(tasks.size))
    own = Workload("task", folder, prompts, chosen.max_output_tokens)
    if model == "tiny":
        return [own]
    return [own, Workload("open", folder, tuple(tokenizer.chat([("user", q)]) for q in QUESTIONS), LONG_TOKENS)]


def tasks_of(chosen: Preset, tokenizer: Tokenizer) -> Taskset:
    """The preset's own task, without a run."""
    spec = describe(chosen.task, chosen.config, tokenizer, chosen.max_prompt_tokens)
    return load_tasks([spec], tokenizer, chosen.max_prompt_tokens)


def rollouts_of(prompts: Sequence[Prompt], samples: Sequence[Sample]) -> list[Rollout]:
    return [
        Rollout(*divmod(row, GROUP_SIZE), prompts[row // GROUP_SIZE], s.output_ids, s.logprobs, s.proofs, s.finish, 0.0)
        for row, s in enumerate(samples)
    ]


def silent(done: int, total: int) -> None:
    """A slot takes seconds; one line is printed for each."""
