"""How good a version is: held-out prompts, sampled as in the run, scored by the run's own task."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ledger.base import Ledger
from node.clock import SystemClock
from node.config import Home
from node.engines.base import Engine
from node.engines.choice import EngineChoice, make_engine
from node.exports import Say, fetch_checkpoint
from node.membership import policy_of, tasks_of
from node.progress import OnProgress, Progress
from node.queries import read_record
from node.rollouts.rollout import Sample
from node.runspec import RunSpec
from node.tasks.taskset import Taskset
from node.training.evaluation import Accuracy, accuracy

SEED = b"held-out prompts, the same noise"  # 32 bytes: two versions differ by their weights alone


async def examine_checkpoint(
    ledger: Ledger,
    run: int,
    version: int,
    samples: int,
    engine: EngineChoice,
    home: Home,
    allow_private: bool,
    say: Say,
) -> dict[str, Any]:
    """Mean reward of `version` on held-out prompts with its standard error, the weights fetched from peers if need be.

    Raises: ConfigError: the version is not published. NotFound: no peer has it now. EngineError.
    """
    spec, _ = await read_record(ledger, run)
    folder = await fetch_checkpoint(ledger, run, version, home, allow_private, say)
    chosen = make_engine(engine, replace(policy_of(spec), group_size=samples), home.engine_log)
    with Progress("examining", "tokens", SystemClock(), version=version) as progress:
        found = await asyncio.to_thread(examine, spec, folder, samples, chosen, progress)
    return {"version": version, **asdict(found)}


def examine(spec: RunSpec, folder: Path, samples: int, engine: Engine, progress: OnProgress) -> Accuracy:
    """Mean reward of `samples` answers to every held-out prompt by the weights in `folder`. Blocking.

    `engine` gives as many answers, and is closed.

    Raises: SpecMismatch, EngineError.
    """
    tasks = tasks_of(spec, folder)
    try:
        engine.load(folder)
        answers = engine.generate(SEED, [item.prompt_ids for item in tasks.held_out], progress)
    finally:
        engine.close()
    return accuracy(_scores(tasks, answers, samples))


def _scores(tasks: Taskset, answers: Sequence[Sample], samples: int) -> list[list[float]]:
    scores = [tasks.score_held_out(k // samples, a.output_ids, a.finish) for k, a in enumerate(answers)]
    return [scores[k : k + samples] for k in range(0, len(scores), samples)]
