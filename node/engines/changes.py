"""What is different between the weights of two model folders, for an engine to change in place what it has loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from node.engines.stored import Shapes, read_config, weight_files
from node.errors import EngineError, Malformed
from node.tensors import parse_header, read_header

MAX_CHANGES = 1 << 26  # values, at ten bytes each in memory; of more, loading is no slower
PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """Of a sparse update: `values` (bfloat16 patterns) at flat `indices` of tensor `name`."""

    name: str
    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint16]


def changes_between(
    base: Path, target: Path, most: int = MAX_CHANGES, piece_bytes: int = PIECE_BYTES
) -> list[Change] | None:
    """What makes the weights of folder `target` of those of `base`, ascending by index; `piece_bytes` compared at once.

    None where that is more than changed values: another config.json, other files or heads of them, other types than
    bfloat16, a folder that cannot be read, or more values than `most`.
    """
    found: list[Change] = []
    try:
        files = weight_files(target)
        names = [path.name for path in files]
        if [path.name for path in weight_files(base)] != names or read_config(base) != read_config(target):
            return None
        for path in files:
            left = most - sum(len(change.indices) for change in found)
            found += _of_file(base / path.name, path, left, piece_bytes)
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


def _of_file(base: Path, target: Path, most: int, piece_bytes: int) -> Iterator[Change]:
    """Raises: Malformed: the two are not the same tensors in bfloat16, or over `most` differ. OSError, ValueError."""
    header = read_header(target)
    if read_header(base) != header:
        raise Malformed(f"{base} and {target} have different heads")
    with base.open("rb") as old, target.open("rb") as new:
        for entry in parse_header(header, target):
            if entry.dtype != "BF16":
                raise Malformed(f"{entry.name} is {entry.dtype}")
            pieces = list(_different(old, new, entry.begin, entry.end, most, piece_bytes))
            if not pieces:
                continue
            indices, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
            most -= len(indices)
            yield Change(entry.name, indices, values)


def _different(
    old: BinaryIO, new: BinaryIO, begin: int, end: int, most: int, piece_bytes: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]]:
    """Of bytes `begin` to `end` of both files: where words differ, counted from `begin`, and the new ones.

    Raises: Malformed: over `most` do. ValueError: a file has become shorter.
    """
    old.seek(begin)
    new.seek(begin)
    for at in range(begin, end, piece_bytes):
        length = min(piece_bytes, end - at)
        before, after = (np.frombuffer(file.read(length), "<u2") for file in (old, new))
        indices = np.flatnonzero(before != after)
        most -= len(indices)
        if most < 0:
            raise Malformed("more values differ than are worth patching")
        if len(indices):
            yield (at - begin) // 2 + indices, after[indices]
