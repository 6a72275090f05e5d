"""Measures patches between versions of real training: how small, how quick, and that chains of them lose nothing.

    python benchmarks/patches.py

Trains the built-in smollm2 on sums at the learning rate of INTELLECT-2 and at ten times it: GRPO gradients of groups of
8 rollouts, one group for each optimiser step. After `--warm` steps, which fill AdamW's moments, every float32 master is
put somewhere in the cell of its bfloat16 value, as a long run leaves it; then a version is made of 8 steps, as the
recipe has it, and after it 20 versions of one step each, which a store follows by patches alone.
Takes ten minutes on two cores, most of it training. The last line is one JSON object; exit code 1: a target is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from patch_sizes.measuring import Figures, mean, measure, measure_often, patched, side_of
from patch_sizes.versions import Versions, informative_groups

from node.models.resolve import resolve
from node.shards.patch_applying import Link
from node.shards.patch_file import Patch
from node.shards.patch_sides import Side
from node.shards.patching import MAX_CHAIN
from node.shards.store import CheckpointStore

RATES = (3e-7, 3e-6)  # INTELLECT-2's, and ten times it
STEPS = 8  # optimiser steps of a version: INTELLECT-2's recipe
CHAINED = 20
LEAST_RATIO = 100.0  # at the first rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("smollm2", "tiny"), default="smollm2")
    parser.add_argument("--warm", type=int, default=24, help="optimiser steps before anything is measured")
    parser.add_argument("--groups", type=int, default=24, help="of rollouts, used by turns")
    parser.add_argument("--threads", type=int, default=2, help="of training; patches are timed on one")
    parser.add_argument("--scratch", type=Path, help="a folder with room for eight times the model")
    arguments = parser.parse_args()
    base = resolve(arguments.model, print)
    groups = informative_groups(arguments.model, base, arguments.groups, arguments.threads)
    rates: dict[str, Any] = {}
    for rate in RATES:
        with tempfile.TemporaryDirectory(prefix="patches-", dir=arguments.scratch) as scratch:
            versions = Versions(arguments.model, base, groups, rate, arguments.threads)
            versions.train(arguments.warm)
            rates[f"{rate:g}"] = at_rate(versions, Path(scratch))
        print(f"{rate:g}: {json.dumps(rates[f'{rate:g}'])}", flush=True)
    result = rates[f"{RATES[0]:g}"] | {"lossless_steps": min(each["lossless_steps"] for each in rates.values())}
    print(json.dumps({**result, "rates": rates}))
    if result["bytes_ratio"] < LEAST_RATIO or result["lossless_steps"] < CHAINED:
        sys.exit(1)


def at_rate(versions: Versions, scratch: Path) -> dict[str, Any]:
    """What patches are at one learning rate; `versions` are warmed up."""
    fresh = _version(versions, scratch, "fresh", STEPS)
    versions.age(scratch / "state")
    aged = _version(versions, scratch, "aged", STEPS)
    chained, lossless = _follow(versions, scratch)
    return {**_shown(aged), "lossless_steps": lossless, "before_a_long_run": _shown(fresh), "one_step": _shown(chained)}


def _version(versions: Versions, scratch: Path, name: str, steps: int) -> Figures:
    before = side_of(versions.export(scratch / f"{name}-0"))
    versions.train(steps)
    after = side_of(versions.export(scratch / f"{name}-1"))
    store = CheckpointStore(scratch / name)
    store.add(before.folder)
    figures = measure_often(store, before, after, scratch / "patch")
    for folder in (before.folder, after.folder, scratch / name):
        shutil.rmtree(folder)
    return figures


def _follow(versions: Versions, scratch: Path) -> tuple[Figures, int]:
    """The mean of the patches of `CHAINED` versions of a step each, and how many of those versions came out right.

    A store has the first version alone and makes each of the one before. At the end another makes the last one of the
    version `MAX_CHAIN` before it, in one go.
    """
    here, store = side_of(versions.export(scratch / "v0")), CheckpointStore(scratch / "following")
    store.add(here.folder)
    figures: list[Figures] = []
    links: list[Link] = []
    right = 0
    for step in range(1, CHAINED + 1):
        if step == CHAINED - MAX_CHAIN + 1:
            anchor = Side(Path(shutil.copytree(here.folder, scratch / "anchor")), here.manifest)
        versions.train(1)
        trained, path = side_of(versions.export(scratch / f"v{step}")), scratch / f"{step}.patch"
        figures.append(measure(store, here, trained, path))
        links.append(Link(Patch.read(path, trained.manifest.chunks), trained.manifest))
        made = store.complete(trained.manifest.root)
        assert made is not None
        here = side_of(made)
        right += here.manifest == trained.manifest
        store.keep([here.manifest.root])
        shutil.rmtree(trained.folder)
    at_once = CheckpointStore(scratch / "at-once")
    at_once.add(anchor.folder)
    last = patched(at_once, anchor, links[-MAX_CHAIN:])
    return mean(figures), right - (side_of(last.folder).manifest != here.manifest)


def _shown(figures: Figures) -> Mapping[str, float]:
    shown = {"bytes_ratio": round(figures.bytes_ratio, 1), **asdict(figures)}
    return {name: value if isinstance(value, int) else float(f"{value:.4g}") for name, value in shown.items()}


if __name__ == "__main__":
    main()
