"""What a dead process left on its disk, read as anybody could read it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.random_kills.opening import journalled
from node.training.batch import GroupId


@dataclass(frozen=True, slots=True)
class Remains:
    """`files` are whole rollout files and `signed` journalled submissions, both by commitment; `said` are signatures
    about submissions; `step` is that of the newest whole training state. `died`: whether `name` was killed at all."""

    died: bool
    log: str
    name: str
    files: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    step: int = 0


def remains_of(home: Path, died: bool, log: str, name: str) -> Remains:
    """Of the one process that used `home`. It must not run."""
    signed = (entry.claim.commitment.hex() for entry in journalled(home) if entry.claim)
    step = max(map(_version, _states(home)), default=0)
    return Remains(died, log, name, files(home), frozenset(signed), said(home), step)


def files(home: Path) -> frozenset[str]:
    return frozenset(path.stem for path in home.glob("runs/*/*/rollouts/*.rollouts"))


def said(home: Path) -> frozenset[str]:
    """Signatures, the node's own and others', that are in its cases."""
    return frozenset(row["signature"] for row in _statements(home))


def findings(home: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Digests of the evidence that lies there, and of that which a `Fault` names."""
    lying = frozenset(path.stem for path in home.glob("runs/*/*/evidence/*.json"))
    named = (row["message"]["evidence"] for row in _statements(home) if row["kind"] == "Fault")
    return lying, frozenset(digest.removeprefix("0x") for digest in named)


def consumed(home: Path, version: int) -> frozenset[GroupId]:
    """The groups that had been used up when the state of `version` was written."""
    (state, *_) = [facts for facts in _states(home) if facts["version"] == version]
    return frozenset(GroupId(bytes.fromhex(row["commitment"]), row["group"]) for row in state["consumed"])


def _statements(home: Path) -> list[dict]:
    return [row for path in home.glob("runs/*/*/cases/*.json") for row in json.loads(path.read_text())]


def _states(home: Path) -> Iterator[dict]:
    for path in sorted(home.glob("runs/*/*/training/states/state-*/state.json")):
        if re.fullmatch("state-[0-9]+", path.parent.name):
            yield json.loads(path.read_text())


def _version(state: dict) -> int:
    return int(state["version"])
