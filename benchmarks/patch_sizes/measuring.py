"""What a patch between two versions costs and saves, and that a chain of them loses nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from node.shards.manifest import build
from node.shards.patch_applying import Link, pieces
from node.shards.patch_file import Patch
from node.shards.patch_making import make_patch
from node.shards.patch_sides import Side
from node.shards.store import CheckpointStore

SECONDS = ("encode_seconds", "apply_seconds", "verify_seconds")
REPEATS = 3  # of what is timed; the quickest counts, since other jobs only add to it


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one patch. Seconds are wall time on one thread: making it; applying it, with hashing and writing the version;
    and reading and hashing all of what was written."""

    changed_share: float
    full_bytes: int
    patch_bytes: int
    encode_seconds: float
    apply_seconds: float
    verify_seconds: float

    @property
    def bytes_ratio(self) -> float:
        return self.full_bytes / self.patch_bytes


def side_of(folder: Path) -> Side:
    return Side(folder, build(folder))


def measure(store: CheckpointStore, base: Side, target: Side, path: Path) -> Figures:
    """Of the patch in `path` from `base`, which `store` has, to `target`, which it has afterwards, made by that."""
    times = [time.perf_counter()]
    size = make_patch(base, target, path, target.manifest.size, 1)
    assert size is not None
    times.append(time.perf_counter())
    made = patched(store, base, [Link(Patch.read(path, target.manifest.chunks), target.manifest)])
    times.append(time.perf_counter())
    assert store.recheck(made.manifest.root)
    times.append(time.perf_counter())
    encode, apply, verify = (after - before for before, after in pairwise(times))
    share = changed_share(base.folder, target.folder)
    return Figures(share, target.manifest.size, size, encode, apply, verify)


def measure_often(store: CheckpointStore, base: Side, target: Side, path: Path) -> Figures:
    """As `measure`, `REPEATS` times."""
    found = []
    for _ in range(REPEATS):
        store.keep([base.manifest.root])
        found.append(measure(store, base, target, path))
    quickest = {name: min(getattr(each, name) for each in found) for name in SECONDS}
    return replace(found[0], **quickest)


def patched(store: CheckpointStore, base: Side, links: Sequence[Link]) -> Side:
    """The last link's target, made in `store` of `base` by patches alone."""
    manifest = links[-1].target
    store.begin(manifest)
    for piece in pieces(base, links):
        store.write_chunk(manifest.root, piece.file, piece.chunk, piece.data)
    folder = store.complete(manifest.root)
    assert folder is not None, "the patches did not make the version"
    return Side(folder, manifest)


def changed_share(base: Path, target: Path) -> float:
    """Of the weights, those that are not as before."""
    names = sorted(path.name for path in target.glob("*.safetensors"))
    pairs = [(_words(base / name), _words(target / name)) for name in names]
    return sum(int(np.count_nonzero(a != b)) for a, b in pairs) / sum(len(a) for a, _ in pairs)


def mean(figures: Sequence[Figures]) -> Figures:
    means = {name: fmean(getattr(each, name) for each in figures) for name in (*SECONDS, "changed_share")}
    patch_bytes = round(fmean(each.patch_bytes for each in figures))
    return replace(figures[0], patch_bytes=patch_bytes, **means)


def _words(path: Path) -> npt.NDArray[np.uint16]:
    """With those of the head, which are few and never change."""
    return np.memmap(path, dtype="<u2", mode="r", shape=(path.stat().st_size // 2,))
