"""Versions of a built-in model as training makes them: real gradients of real rollouts, at a learning rate.

The rollouts are the base model's, generated once: at the rates looked at, tens of steps hardly change what it says.
Only groups whose rewards differ are taken, since no other has a gradient.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from calibration.generated_slots import rollouts_of, silent, tasks_of, workloads
from calibration.later_states import drawn, groups_of

from node.launch import preset
from node.tasks.tokenizer import load_tokenizer
from node.training.advantages import is_informative
from node.training.batch import TrainingGroup
from node.training.checkpoint import latest_state, save_state
from node.training.step import Learner

PROMPTS_AT_ONCE = 4


class Versions:
    """One training run, taken on as far as is asked; groups are used one after the other, then again from the first."""

    def __init__(self, model: str, base: Path, groups: Sequence[TrainingGroup], rate: float, threads: int) -> None:
        self._hyper = replace(preset(model).hyper, learning_rate=rate)
        self._learner = Learner(base, self._hyper, 1.0, threads)
        self._groups = groups
        self._used = 0

    def train(self, optimizer_steps: int) -> None:
        """One group of rollouts makes one optimiser step."""
        for _ in range(optimizer_steps):
            group = self._groups[self._used % len(self._groups)]
            self._used += 1
            self._learner.step([group], silent)

    def age(self, scratch: Path) -> None:
        """Puts each float32 master somewhere in the cell of its bfloat16 value, by lot, as a long run leaves it.

        At first every master lies on its bfloat16 value, half a cell away from the next: what a run publishes in its
        first hundred steps is smaller than what it does later on.
        """
        self._learner.save_state(scratch)
        state = latest_state(scratch)
        assert state is not None
        spread = {
            name: _spread(tensor) if name.startswith("weight/") else tensor for name, tensor in state.tensors.items()
        }
        save_state(scratch, replace(state, tensors=spread), keep=1)
        self._learner.resume(scratch)
        shutil.rmtree(scratch)

    def export(self, folder: Path) -> Path:
        """The weights as a trainer publishes them."""
        self._learner.export(folder)
        return folder


def _spread(masters: torch.Tensor) -> torch.Tensor:
    """Uniformly over what rounds to the same bfloat16; where that is not as wide below as above, some stay."""
    published = masters.bfloat16()
    above = (published.view(torch.int16) + 1).view(torch.bfloat16).float()
    width = (above - published.float()).abs()
    moved = published.float() + (torch.rand(masters.shape, generator=torch.Generator().manual_seed(0)) - 0.5) * width
    return torch.where(moved.bfloat16() == published, moved, published.float())


def informative_groups(model: str, base: Path, wanted: int, threads: int) -> list[TrainingGroup]:
    """The first `wanted` groups whose rewards differ, of prompts drawn by lot; the same ones on every call."""
    tasks = tasks_of(preset(model), load_tokenizer(base))
    engine = workloads(model, base)[0].engine(base, threads)
    found: list[TrainingGroup] = []
    drawings = 0
    while len(found) < wanted:
        seed = hashlib.sha256(f"patches of {model} {drawings}".encode()).digest()
        numbers = drawn(seed, PROMPTS_AT_ONCE, tasks.size)
        prompts = [tasks.item(number).prompt_ids for number in numbers]
        rollouts = rollouts_of(prompts, engine.generate(seed, prompts, silent))
        found += [group for group in groups_of(seed, numbers, rollouts, tasks) if is_informative(group.rewards)]
        drawings += 1
        print(f"{min(len(found), wanted)} of {wanted} groups after {drawings * PROMPTS_AT_ONCE} prompts", flush=True)
    engine.close()
    return found[:wanted]
