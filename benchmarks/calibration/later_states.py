"""States that training takes a built-in model through, so that its calibration holds for a whole run.

Learned weights give other logits and other noise than the base model's; the states are made by the engine, the scorer
and the learner that runs use.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from calibration.generated_slots import GROUP_SIZE, Workload, rollouts_of, silent, tasks_of

from ledger.base import Address, Digest, Version
from node.launch import preset
from node.rollouts.rollout import Rollout
from node.tasks.taskset import Taskset
from node.tasks.tokenizer import load_tokenizer
from node.training.batch import TrainingGroup
from node.training.step import Learner

KEPT = {"tiny": (10, 30, 100), "smollm2": (5, 10, 20)}  # steps after which a state is kept
NOBODY = Address("0x" + "00" * 20)


def later_states(model: str, work: Workload, scratch: Path, threads: int) -> dict[str, Path]:
    """Folders of `work`'s model after some steps on its preset's task, by name; the same ones on every call."""
    chosen = preset(model)
    tasks = tasks_of(chosen, load_tokenizer(work.folder))
    learner = Learner(work.folder, chosen.hyper, 1.0, threads)
    engine = work.engine(work.folder, threads)
    states: dict[str, Path] = {}
    for step in range(1, max(KEPT[model]) + 1):
        seed = hashlib.sha256(f"later state of {model} {step}".encode()).digest()
        numbers = drawn(seed, chosen.batch_rollouts // GROUP_SIZE, tasks.size)
        prompts = [tasks.item(number).prompt_ids for number in numbers]
        rollouts = rollouts_of(prompts, engine.generate(seed, prompts, silent))
        report = learner.step(groups_of(seed, numbers, rollouts, tasks), silent)
        print(f"step {step}: mean reward {report.mean_reward:.2f}", flush=True)
        weights = scratch / f"step{step}"
        learner.export(weights)
        engine.load(weights)
        if step in KEPT[model]:
            states[weights.name] = weights
        else:
            shutil.rmtree(weights)
    engine.close()
    return states


def drawn(seed: bytes, count: int, size: int) -> list[int]:
    digests = [hashlib.sha256(seed + bytes([group])).digest() for group in range(count)]
    return [int.from_bytes(digest[:8], "big") % size for digest in digests]


def groups_of(seed: bytes, numbers: Sequence[int], rollouts: Sequence[Rollout], tasks: Taskset) -> list[TrainingGroup]:
    groups = []
    for group, number in enumerate(numbers):
        rows = tuple(rollouts[group * GROUP_SIZE : (group + 1) * GROUP_SIZE])
        rewards = tuple(tasks.score(number, row.output_ids, row.finish) for row in rows)
        groups.append(TrainingGroup(Digest(seed), NOBODY, Version(0), group, rows, rewards))
    return groups
