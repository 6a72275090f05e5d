"""The same slots by both engines, each looked at by both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from calibration.generated_slots import Workload, silent

from node.engines.base import Engine
from node.engines.transformers import TransformersEngine
from node.engines.vllm.engine import Hardware, VllmEngine
from node.rollouts.rollout import Rollout

from .agreement import Slot

Made = dict[str, list[list[Rollout]]]  # slots by the engine that generated them
Looks = dict[tuple[str, str], list[Slot]]  # by the engine that generated, and the one that looked


def play(work: Workload, slots: int, threads: int, log: Path, say: Callable[[str], None]) -> tuple[Made, Looks]:
    """`slots` slots of `work`, of 32 rollouts each."""
    vllm = VllmEngine(work.policy, Hardware(threads=threads), log)
    engines: Mapping[str, Engine] = {"transformers": TransformersEngine(work.policy, threads), "vllm": vllm}
    made: Made = {name: [] for name in engines}
    looks: Looks = {(maker, checker): [] for maker in engines for checker in engines}
    with ExitStack() as stack:
        for engine in engines.values():
            stack.enter_context(closing(engine))
            engine.load(work.folder)
        for number in range(slots):
            seed = hashlib.sha256(f"engine benchmark {work.name} {number}".encode()).digest()
            for maker, engine in engines.items():
                rollouts = work.slot(engine, seed)
                made[maker].append(rollouts)
                for checker, other in engines.items():
                    replays = other.replay(seed, rollouts, silent)
                    looks[maker, checker].append(list(zip(rollouts, replays, strict=True)))
            say(f"slot {number + 1} of {slots}")
    return made, looks
