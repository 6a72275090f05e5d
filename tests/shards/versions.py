"""Checkpoints that differ little, and patches between them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from node.shards.manifest import build
from node.shards.patch_applying import Link, pieces
from node.shards.patch_file import Patch
from node.shards.patch_making import make_patch
from node.shards.patch_sides import Side
from tests.shards.checkpoints import checkpoint

WORDS = 3 << 20  # two chunks, the second one half


def weights(words: int = WORDS, seed: int = 0) -> bytes:
    """bfloat16 patterns of normally distributed numbers."""
    numbers = np.random.default_rng(seed).standard_normal(words, dtype=np.float32)
    return (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()


def trained(data: bytes, seed: int, share: float = 0.002) -> bytes:
    """`data` with that share of its words moved to a neighbour."""
    rng = np.random.default_rng(seed)
    words = np.frombuffer(data, dtype="<u2").copy()
    words[rng.choice(len(words), max(1, int(share * len(words))), replace=False)] += 1
    return words.tobytes()


def versions(folder: Path, count: int, words: int = WORDS) -> list[Side]:
    """`count` checkpoints of weights and a small file that never changes, each trained on from the one before."""
    found, data = [], weights(words)
    for version in range(count):
        data = trained(data, version) if version else data
        found.append(side(folder / f"v{version}", weights=data, config=b"{}"))
    return found


def side(folder: Path, **files: bytes) -> Side:
    return Side(checkpoint(folder, **files), build(folder))


def patch(base: Side, target: Side, path: Path) -> Patch:
    assert make_patch(base, target, path, 1 << 30, 2) == path.stat().st_size
    return Patch.read(path, target.manifest.chunks)


def links(sides: Sequence[Side], folder: Path) -> list[Link]:
    """From each to the next."""
    pairs = pairwise(sides)
    return [Link(patch(*pair, folder / f"{number}.patch"), pair[1].manifest) for number, pair in enumerate(pairs)]


def made(base: Side, chain: Sequence[Link]) -> dict[tuple[int, int], bytes]:
    """What the chain makes of the base, by file and chunk; what it leaves alone is not in it."""
    return {(piece.file, piece.chunk): piece.data for piece in pieces(base, chain)}


def news(base: Side, target: Side) -> dict[tuple[int, int], bytes]:
    """The chunks of `target` that `base` does not have at their places, by file and chunk."""
    names = [file.name for file in target.manifest.files]
    changed = {key for key, spot in target.spots.items() if base.spots.get(key, spot).digest != spot.digest}
    changed |= target.spots.keys() - base.spots.keys()
    return {(names.index(key[0]), key[1]): target.read(key) for key in changed}
