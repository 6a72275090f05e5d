"""What a finished network leaves: one JSON file per arm and seed, from which everything else is computed."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from node.devnet.report import Report
from node.errors import ConfigError

UNPAID = ("voided", "slashed", "faulted")  # what a submission that was found wanting ends as


class HeldOut(BaseModel):
    """Accuracy on held-out prompts with its standard error, clustered by prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    standard_error: float
    prompts: int
    samples: int


class Result(BaseModel):
    """groups: by version, the mean reward of every group of its accepted rollouts. rejected, expired: rollouts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str
    seed: int
    parameters: dict[str, Any]
    held_out: dict[int, HeldOut]
    groups: list[list[float]]
    rejected: int
    expired: int
    failures: list[str]
    seconds: float


def result(arm: str, seed: int, parameters: dict[str, Any], rows: int, report: Report) -> Result:
    """Of a network whose submissions have `rows` rollouts each."""
    states = [verdict["state"] for verdict in report.verdicts]
    return Result(
        arm=arm,
        seed=seed,
        parameters=parameters,
        held_out=report.summary["held_out"],
        groups=report.groups,
        rejected=rows * sum(states.count(state) for state in UNPAID),
        expired=rows * states.count("expired"),
        failures=report.failures,
        seconds=report.summary["seconds"],
    )


def path_of(folder: Path, arm: str, seed: int) -> Path:
    return folder / f"{arm}-{seed}.json"


def save(found: Result, folder: Path) -> None:
    """Whole or not at all."""
    path = path_of(folder, found.arm, found.seed)
    partial = path.with_suffix(".partial")
    partial.write_text(found.model_dump_json(indent=1) + "\n")
    partial.replace(path)


def load(folder: Path, arm: str, seed: int, parameters: dict[str, Any]) -> Result | None:
    """The stored result of a network, or None where it was not played to its end.

    Raises: ConfigError: the file is none of ours, or of a network with other parameters.
    """
    path = path_of(folder, arm, seed)
    if not path.exists():
        return None
    try:
        found = Result.model_validate_json(path.read_text())
    except (ValidationError, OSError) as error:
        raise ConfigError(f"{path} cannot be used ({error}): move it away") from error
    if json.loads(json.dumps(parameters)) != found.parameters:
        raise ConfigError(f"{path} was made with other parameters: choose another --results folder")
    return found
