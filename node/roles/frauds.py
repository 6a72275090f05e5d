"""Workmanship: how a worker goes about its work. The honest way, and frauds with which to test a network's defences.

A fraud costs whoever tries it the stake; to add one, write a class here and name it in `FRAUDS`.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from node.errors import ConfigError
from node.rollouts.rollout import Sample


class Workmanship(Protocol):
    """Where a worker could cheat: the weights that it loads, and what it makes of the engine's rollouts."""

    @property
    def checks_itself(self) -> bool:
        """Whether own work is put through the validators' cheap checks before it is committed."""

    def weights(self, folder: Path) -> Path:
        """The folder that is really loaded instead of `folder`."""

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        """What is passed off as the engine's output."""

    def reward(self, score: float) -> float:
        """The reward that is claimed for an answer that scores `score`."""


class Honest:
    """The weights of the run, the rollouts of the engine."""

    checks_itself = True

    def weights(self, folder: Path) -> Path:
        return folder

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        return list(samples)

    def reward(self, score: float) -> float:
        return score


class OtherModel(Honest):
    """Generates and proves with half of the model: every second layer adds nothing, as if it were skipped for speed."""

    def weights(self, folder: Path) -> Path:
        other = folder.parent / f"{folder.name}.half"
        if not (other / "model.safetensors").exists():
            shutil.copytree(folder, other, dirs_exist_ok=True)
            (other / "model.safetensors").unlink()
            _halve(folder / "model.safetensors", other / "model.safetensors")
        return other


class EditedTokens(Honest):
    """Keeps proofs and log-probabilities of honest work, but swaps tokens in the answer."""

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        return [replace(sample, output_ids=_rotated(sample.output_ids)) for sample in samples]


class ForgedReward(Honest):
    """Claims full reward for every answer."""

    checks_itself = False

    def reward(self, score: float) -> float:
        return 1.0


FRAUDS: Mapping[str, Callable[[], Workmanship]] = {
    "other-model": OtherModel,
    "edited-tokens": EditedTokens,
    "forged-reward": ForgedReward,
}


def workmanship(fraud: str | None) -> Workmanship:
    """The fraud of that name, or honest work. Raises: ConfigError."""
    if fraud is None:
        return Honest()
    if fraud not in FRAUDS:
        raise ConfigError(f"there is no fraud {fraud!r}: choose one of {', '.join(FRAUDS)}")
    return FRAUDS[fraud]()


def _rotated(output_ids: tuple[int, ...]) -> tuple[int, ...]:
    """All tokens but the last, rotated by one: the length and the end stay as they were."""
    body = output_ids[:-1]
    return (*body[1:], *body[:1], output_ids[-1])


def _halve(source: Path, target: Path) -> None:
    """Writes `source`'s tensors with the output projections of every odd layer zeroed."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    for name, tensor in tensors.items():
        layer = next((int(part) for part in name.split(".") if part.isdigit()), 0)
        if layer % 2 and name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = tensor * 0
    save_file(tensors, target, metadata={"format": "pt"})
