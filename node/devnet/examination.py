"""How good a version is: held-out prompts, sampled as in the run, scored by the run's own task."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from node.rollouts.rollout import Sample
from node.runspec import RunSpec
from node.runtime import EngineChoice, make_engine, policy_of, tasks_of
from node.tasks.taskset import Taskset
from node.training.evaluation import Accuracy, accuracy

SEED = b"held-out prompts, the same noise"  # 32 bytes: before and after differ by their weights alone


def examine(spec: RunSpec, folder: Path, samples: int, engine_name: str) -> Accuracy:
    """Mean reward of `samples` answers to every held-out prompt by the weights in `folder`. Blocking.

    Raises: SpecMismatch, EngineError.
    """
    tasks = tasks_of(spec, folder)
    engine = make_engine(EngineChoice(engine_name), replace(policy_of(spec), group_size=samples))
    try:
        engine.load(folder)
        answers = engine.generate(SEED, [item.prompt_ids for item in tasks.held_out], _silent)
    finally:
        engine.close()
    return accuracy(_scores(tasks, answers, samples))


def _scores(tasks: Taskset, answers: Sequence[Sample], samples: int) -> list[list[float]]:
    scores = [tasks.score_held_out(k // samples, a.output_ids, a.finish) for k, a in enumerate(answers)]
    return [scores[k : k + samples] for k in range(0, len(scores), samples)]


def _silent(done: int, total: int) -> None:
    """The caller says when an examination begins and ends."""
