"""All tasks of a run as one numbered list of prompts, reproduced here and checked against the RunSpec."""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from pydantic import ValidationError

from ledger.parsing import first_problem
from node.errors import ConfigError, SpecMismatch
from node.runspec import TaskSpec
from node.tasks.arithmetic import ARITHMETIC
from node.tasks.base import Item, Task, Tokenizer
from node.tasks.environment import Environment, Setting
from node.tasks.lottery import LOTTERY
from node.tasks.residues import RESIDUES

ENVIRONMENTS: Mapping[str, Environment[Any]] = {
    "arithmetic": ARITHMETIC,
    "lottery": LOTTERY,
    "residues": RESIDUES,
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """A task whose prompts are all short enough for the run: what is numbered is what is left."""

    task: Task
    items: tuple[Item, ...]
    held_out: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Taskset:
    """Items are numbered from 0 through the tasks in the order of the RunSpec; held-out ones have numbers of their own.

    Rewards are float32 of the scorers' doubles (protocol 1, "Rollout file"), so equal to what files hold.
    """

    tasks: tuple[Numbered, ...]

    @property
    def size(self) -> int:
        return sum(len(task.items) for task in self.tasks)

    @property
    def held_out(self) -> tuple[Item, ...]:
        """Prompts that no seed ever draws, through the tasks in order."""
        return tuple(item for task in self.tasks for item in task.held_out)

    def item(self, index: int) -> Item:
        """Raises: IndexError, outside 0 <= index < size."""
        return self._find(index)[1]

    def score(self, index: int, output_ids: Sequence[int], finish: int) -> float:
        """Reward of an answer to item `index`. Raises: IndexError."""
        task, item = self._find(index)
        return _reward(task, item, output_ids, finish)

    def score_held_out(self, index: int, output_ids: Sequence[int], finish: int) -> float:
        """Reward of an answer to `held_out[index]`. Raises: IndexError."""
        task, place = _locate([len(task.held_out) for task in self.tasks], index)
        return _reward(self.tasks[task].task, self.tasks[task].held_out[place], output_ids, finish)

    def _find(self, index: int) -> tuple[Task, Item]:
        task, place = _locate([len(task.items) for task in self.tasks], index)
        return self.tasks[task].task, self.tasks[task].items[place]


def load_tasks(specs: Sequence[TaskSpec], tokenizer: Tokenizer, max_prompt_tokens: int) -> Taskset:
    """The run's tasks, each rebuilt from its config and compared with its entry.

    Raises:
        SpecMismatch: an unknown environment or config, another version, or another size or digest than the entry's;
            the message names the task and which.
    """
    return Taskset(tuple(_reproduced(index, spec, tokenizer, max_prompt_tokens) for index, spec in enumerate(specs)))


def describe(name: str, config: Mapping[str, Setting], tokenizer: Tokenizer, max_prompt_tokens: int) -> TaskSpec:
    """The entry of a new run's spec for environment `name`, every setting of it written out.

    Raises:
        ConfigError: no such environment, a config that it refuses, or no prompt short enough.
    """
    try:
        environment = _environment(name)
        settings = environment.parse(config)
        numbered = _number(environment.build(settings, tokenizer, environment.fuel_limit), max_prompt_tokens)
        return TaskSpec(
            name=name,
            version=environment.version,
            config=settings.model_dump(),
            size=len(numbered.items),
            dataset_digest=digest(numbered.items),
            scorer_version=environment.scorer_version,
            fuel_limit=environment.fuel_limit,
        )
    except SpecMismatch as error:
        raise ConfigError(f"task {name}: {error}") from error
    except ValidationError as error:
        raise ConfigError(
            f"task {name}: {len(numbered.items)} prompts of at most {max_prompt_tokens} tokens: "
            f"{first_problem(error, 'task')}"
        ) from error


def digest(items: Sequence[Item]) -> str:
    """Dataset digest, in hexadecimal: SHA-256 over prompt and answer of every item, each with its length in bytes.

    Source: protocol 1, "RunSpec"; integers are little-endian, as in rollout files.
    """
    sha = hashlib.sha256()
    for item in items:
        ids = struct.pack(f"<{len(item.prompt_ids)}I", *item.prompt_ids)
        answer = item.answer.encode()
        sha.update(struct.pack("<I", len(ids)) + ids + struct.pack("<I", len(answer)) + answer)
    return sha.hexdigest()


def _reproduced(index: int, spec: TaskSpec, tokenizer: Tokenizer, max_prompt_tokens: int) -> Numbered:
    where = f"tasks[{index}] ({spec.name})"
    try:
        environment = _environment(spec.name)
        _require_same("version", spec.version, environment.version)
        _require_same("scorer_version", spec.scorer_version, environment.scorer_version)
        task = environment.build(environment.parse(spec.config), tokenizer, spec.fuel_limit)
        numbered = _number(task, max_prompt_tokens)
        _require_same("size", spec.size, len(numbered.items))
        _require_same("dataset_digest", spec.dataset_digest, digest(numbered.items))
    except SpecMismatch as error:
        raise SpecMismatch(f"{where}, {error}") from error
    return numbered


def _require_same(field: str, wanted: int | str, here: int | str) -> None:
    if wanted != here:
        raise SpecMismatch(f"{field}: the run says {wanted}, this node makes {here}")


def _environment(name: str) -> Environment[Any]:
    if name not in ENVIRONMENTS:
        raise SpecMismatch(f"name: this node knows {', '.join(sorted(ENVIRONMENTS))}, not {name}")
    return ENVIRONMENTS[name]


def _number(task: Task, max_prompt_tokens: int) -> Numbered:
    def short(items: Sequence[Item]) -> tuple[Item, ...]:
        return tuple(item for item in items if len(item.prompt_ids) <= max_prompt_tokens)

    return Numbered(task, short(task.items), short(task.held_out))


def _locate(sizes: Sequence[int], index: int) -> tuple[int, int]:
    """(task, place in it) of the `index`-th of lists with `sizes`, put end to end."""
    ends = list(accumulate(sizes))
    if not 0 <= index < (ends[-1] if ends else 0):
        raise IndexError(f"item {index} of {ends[-1] if ends else 0}")
    task = bisect_right(ends, index)
    return task, index - (ends[task] - sizes[task])


def _reward(task: Task, item: Item, output_ids: Sequence[int], finish: int) -> float:
    return float(np.float32(task.score(item, output_ids, finish)))
