"""Shows that a network of processes learns: plays whole local networks, tests their results, and draws the curves.

    python benchmarks/learning.py --model tiny --seeds 3
    python benchmarks/learning.py --model smollm2 --seeds 3

Every network is a chain, a trainer, a relay, two validators and two workers, as `intellect-node devnet` starts them.
Finished networks are kept as JSON in the results folder and not played again; one that was stopped is begun anew.
The last line is one JSON object; its `seconds` are those of this call, every network has its own.
Exit code 1: something that must hold does not, or a network failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from learning_series.judgement import claims, figures, overview
from learning_series.playing import play_all
from learning_series.plot import plot
from learning_series.series import SERIES

from node.errors import ConfigError
from node.models.resolve import resolve

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SERIES), default="tiny")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("learning-results"))
    parser.add_argument("--plot", type=Path, help="default docs/learning-MODEL.svg")
    arguments = parser.parse_args()
    series = SERIES[arguments.model]
    folder = (arguments.results / series.model).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    resolve(series.model, print)
    began = time.monotonic()
    try:
        results, failures = asyncio.run(play_all(series, arguments.seeds, folder))
    except ConfigError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"stopped: the same command goes on with the networks that have no result in {folder}")
    for failure in failures:
        print(f"NOT PLAYED TO ITS END: {failure}")
    rows = [figures(series, one) for one in results]
    made = claims(series, rows)
    for claim in made:
        print(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.claim}: {claim.measured}")
    verdict = not failures and bool(rows) and all(claim.holds for claim in made)
    if results:
        plot(series, results, arguments.plot or DOCS / f"learning-{series.model}.svg")
    summary = {"model": series.model, "seeds": arguments.seeds, **overview(series, rows)}
    summary["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(summary | {"networks": rows, "claims": [asdict(claim) for claim in made], "verdict": verdict}))
    sys.exit(0 if verdict else 1)


if __name__ == "__main__":
    main()
