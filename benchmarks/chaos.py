"""Kills the roles of a local network at random moments, and counts what that doubled, dropped or left unpaid.

    python benchmarks/chaos.py --kills 200 --seed 1

Trainer, relay, four validators (three sign) and three workers are real processes on a real chain; only the model is a
hash. Who dies, when, and how long it stays dead follows from the seed. Afterwards the owner ends the run, everybody
leaves, and a table is made from the chain and from what lies on the disks; the last line is one JSON object. The exit
code is 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from random_kills.figures import Figures, count
from random_kills.network import Choice, killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=4.0, help="mean seconds between two kills")
    parser.add_argument("--folder", type=Path, help="where files and logs stay; it must not exist")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="intellect-node-chaos-")) / "network"
    print(f"files and logs: {folder}", flush=True)
    figures = asyncio.run(figures_of(Choice(folder, arguments.kills, arguments.seed, arguments.pause)))
    show(figures)
    sys.exit(1 if figures.failures else 0)


async def figures_of(choice: Choice) -> Figures:
    async with killed(choice, lambda line: print(line, flush=True)) as outcome:
        return await count(outcome)


def show(figures: Figures) -> None:
    """Tables for people, then one line for scripts."""
    for title, rows in figures.tables().items():
        print(f"\n{title}")
        cells = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        for line in cells:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    print()
    for failure in figures.failures:
        print(f"error: {failure}")
    print(json.dumps(figures.as_json()))


if __name__ == "__main__":
    main()
