"""What is different between the weights of two model folders, for an engine to change in place what it has loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from node.engines.stored import Shapes, read_config, weight_files
from node.errors import EngineError, Malformed
from node.tensors import parse_header, read_header

MAX_CHANGES = 1 << 26  # values, at ten bytes each in memory; of more, loading is no slower
PIECE = 1 << 22  # values compared at once


@dataclass(frozen=True, slots=True)
class Change:
    """Of a sparse update: `values` (bfloat16 patterns) at flat `indices` of tensor `name`."""

    name: str
    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint16]


def changes_between(base: Path, target: Path) -> list[Change] | None:
    """What makes the weights of folder `target` of those of `base`, ascending by index.

    None where that is more than changed values: another config.json, other files or heads of them, other types than
    bfloat16, a folder that cannot be read, or more than `MAX_CHANGES`.
    """
    found: list[Change] = []
    try:
        files = weight_files(target)
        names = [path.name for path in files]
        if [path.name for path in weight_files(base)] != names or read_config(base) != read_config(target):
            return None
        for path in files:
            found += _of_file(base / path.name, path, MAX_CHANGES - sum(len(change.indices) for change in found))
    except (OSError, ValueError, Malformed, EngineError):  # ValueError: of a file that has become shorter
        return None
    return found


def require_fit(changes: Sequence[Change], shapes: Shapes) -> None:
    """Raises EngineError unless every change's tensor exists and its indices are in it, one value each."""
    for change in changes:
        shape = shapes.get(change.name)
        if shape is None:
            raise EngineError(f"the update changes {change.name!r}, which is no tensor of the model")
        size = math.prod(shape)
        if len(change.indices) != len(change.values) or (
            len(change.indices) and not (change.indices.min() >= 0 and change.indices.max() < size)
        ):
            raise EngineError(
                f"the update of {change.name!r} has indices outside its {size} values, or not one value each"
            )


def _of_file(base: Path, target: Path, most: int) -> Iterator[Change]:
    """Raises: Malformed: the two are not the same tensors in bfloat16, or over `most` differ. OSError, ValueError."""
    header = read_header(target)
    if read_header(base) != header:
        raise Malformed(f"{base} and {target} have different heads")
    for entry in parse_header(header, target):
        if entry.dtype != "BF16":
            raise Malformed(f"{entry.name} is {entry.dtype}")
        size = (entry.end - entry.begin) // 2
        if size:
            old, new = (np.memmap(path, "<u2", "r", entry.begin, (size,)) for path in (base, target))
            indices = _different(old, new, most)
            most -= len(indices)
            if len(indices):
                yield Change(entry.name, indices, np.array(new[indices]))


def _different(old: npt.NDArray[np.uint16], new: npt.NDArray[np.uint16], most: int) -> npt.NDArray[np.int64]:
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(new), PIECE):
        found.append(start + np.flatnonzero(old[start : start + PIECE] != new[start : start + PIECE]))
        most -= len(found[-1])
        if most < 0:
            raise Malformed("more values differ than are worth patching")
    return np.concatenate(found)
