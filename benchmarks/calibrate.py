"""Measures a built-in model's honest noise, and writes the preset that runs are made from.

    python benchmarks/calibrate.py tiny
    python benchmarks/calibrate.py smollm2

Generates slots with the engine on this machine and replays them, all rows together and some alone, as audits do.
Thresholds, tail table and all figures behind them go to node/presets/NAME.json, with what the checks then say of known
frauds. Takes five minutes for `tiny`, an hour for `smollm2` on one core. Every seed is SHA-256 of a text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.fraud_power import FRAUDS, fraud_power
from calibration.generated_slots import GROUP_SIZE, GROUPS, Workload, silent, workloads
from calibration.later_states import later_states

from node.checks.calibration import Calibration, Trial, calibrate
from node.engines.base import Engine
from node.models.cache import file_digest
from node.models.resolve import resolve

PRESETS = Path(__file__).parents[1] / "node" / "presets"
ALONE = 8  # every how manieth row is replayed by itself too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("tiny", "smollm2"))
    parser.add_argument("--slots", type=int, default=6, help="generated for each state of the model and each workload")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    folder = resolve(arguments.model, print)
    works = workloads(arguments.model, folder)
    with tempfile.TemporaryDirectory(prefix="calibrate-") as scratch:
        later = later_states(arguments.model, works[0], Path(scratch), arguments.threads)
        states = {"base": folder, **later}
        trials, engine = honest_trials(arguments, works, states)
        found = calibrate(trials)
        frauds = {name: fraud_power(name, folder, works, found, Path(scratch), arguments.threads) for name in FRAUDS}
    preset_file = PRESETS / f"{arguments.model}.json"
    written = _preset(found) | {"measured": _measured(arguments, folder, states, engine, found, frauds)}
    preset_file.write_text(json.dumps(written, indent=1) + "\n")
    print(f"wrote {preset_file}: {found.proof}")


def honest_trials(
    arguments: argparse.Namespace, works: list[Workload], states: Mapping[str, Path]
) -> tuple[list[Trial], str]:
    """Rollouts of every state of the model and workload, each with its replays; and the engine's name."""
    trials: list[Trial] = []
    name = ""
    for state, weights in states.items():
        for work in works:
            engine = work.engine(weights, arguments.threads)
            name = engine.name
            for slot in range(arguments.slots):
                pair = f"{state}/{work.name}"
                seed = hashlib.sha256(f"calibrate {arguments.model} {pair} {slot}".encode()).digest()
                trials += _trials(engine, seed, pair, work)
                print(f"{pair}: slot {slot + 1} of {arguments.slots}", flush=True)
            engine.close()
    return trials, name


def _trials(engine: Engine, seed: bytes, pair: str, work: Workload) -> list[Trial]:
    rollouts = work.slot(engine, seed)
    together = zip(rollouts, engine.replay(seed, rollouts, silent), strict=True)
    alone = [(rollout, engine.replay(seed, [rollout], silent)[0]) for rollout in rollouts[::ALONE]]
    return [Trial(pair, rollout, replay) for rollout, replay in (*together, *alone)]


def _preset(found: Calibration) -> dict[str, Any]:
    return {
        "proof": found.proof.model_dump(mode="json"),
        "sampling_test": found.sampling_test.model_dump(mode="json"),
    }


def _measured(
    arguments: argparse.Namespace,
    folder: Path,
    states: Mapping[str, Path],
    engine: str,
    found: Calibration,
    frauds: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    return {
        "engine": engine,
        "model": arguments.model,
        "weights_sha256": file_digest(folder / "model.safetensors"),
        "states": list(states),
        "threads": arguments.threads,
        "slots": arguments.slots,
        "rows_per_slot": GROUPS * GROUP_SIZE,
        "seeds": f'SHA-256 of "calibrate {arguments.model} STATE/WORKLOAD SLOT"',
        "honest": found.measured,
        "frauds": frauds,
    }


if __name__ == "__main__":
    main()
