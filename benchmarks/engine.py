"""Measures the vLLM engine: what seeded sampling and proofs cost, how fast its work is checked, how engines agree.

    python benchmarks/engine.py
    python benchmarks/engine.py --quick

Needs vLLM. Runs that are compared alternate, with both processes loaded and one of them busy; figures are medians, with
quartiles. The last line is one JSON object. Exit code 1: honest work was rejected or, not with --quick, a figure misses
its target. Takes fifty minutes on two cores, a few minutes with --quick.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from calibration.generated_slots import Workload, workloads
from engine_speed.agreement import pair_figures, same_share
from engine_speed.checking import Bare, Engines, check
from engine_speed.checking import Times as Checks
from engine_speed.figures import PAPER_BYTES_PER_TOKEN
from engine_speed.plain import Plain, plain
from engine_speed.racing import Times, race
from engine_speed.slots import play
from engine_speed.wire import bytes_per_token

from node.engines.base import Policy
from node.engines.transformers import TransformersEngine
from node.engines.vllm.engine import CPU_CACHE_BYTES, Hardware, VllmEngine
from node.engines.vllm.installed import require_usable
from node.engines.vllm.messages import Settings
from node.errors import NodeError
from node.launch import Plan, build_spec, preset
from node.models.resolve import resolve

MODEL = "smollm2"
JUDGED_ROWS = 32  # the batch that the targets are for
CHECKED_TOKENS = 256  # of output in what is checked, after prompts of about 40: a share of generating hangs on both
MOST_COST_PERCENT, MOST_VERIFY_RATIO = 3.0, 0.5


def main() -> None:
    arguments = _arguments()
    began = time.monotonic()
    logs = Path(tempfile.mkdtemp(prefix="engine-"))
    try:
        require_usable(())
        works = workloads(MODEL, resolve(MODEL, print))
        summary = speed(arguments, works[0], logs)
        for work in works[: arguments.workloads] if arguments.slots else ():
            summary |= agreement(arguments, work, logs)
    except NodeError as error:
        sys.exit(f"error: {error}\nlogs of this run are in {logs}")
    shutil.rmtree(logs)
    summary["seconds"] = round(time.monotonic() - began, 1)
    summary["missed"] = missed(summary, arguments.quick)
    for line in summary["missed"]:
        print(f"error: {line}")
    print(json.dumps(summary))
    sys.exit(1 if summary["missed"] else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few short runs, which show that it works")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, nargs="*", help="batch sizes, one after the other")
    parser.add_argument("--pairs", type=int, help="of runs, for each batch size and start")
    parser.add_argument("--starts", type=int, help="of all processes")
    parser.add_argument("--slots", type=int, help="of 32 rollouts that both engines make of each workload; 0 for none")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.rows = arguments.rows or ([1, JUDGED_ROWS] if quick else [1, 8, JUDGED_ROWS, 64])
    arguments.pairs, arguments.starts = arguments.pairs or (2 if quick else 4), arguments.starts or (1 if quick else 4)
    arguments.tokens, arguments.checked_tokens = (32, 32) if quick else (128, CHECKED_TOKENS)
    arguments.rounds, slots, arguments.workloads = (1, 1, 1) if quick else (2, 7, 2)
    arguments.slots = slots if arguments.slots is None else arguments.slots
    return arguments


# --- Speed


def speed(arguments: argparse.Namespace, work: Workload, logs: Path) -> dict[str, Any]:
    """Races at each batch size, and rounds of checking, with processes that are begun anew: where their weights lie in
    memory makes one up to a tenth faster than another for all its life."""
    races = {rows: Times(rows, rows * arguments.tokens) for rows in arguments.rows}
    checks = Checks(JUDGED_ROWS * arguments.checked_tokens)
    load = round(os.getloadavg()[0], 2)
    for start in range(arguments.starts):
        say(f"starting two processes of vLLM, {arguments.threads} threads each, for the {start + 1}. time of "
            f"{arguments.starts}; load of the machine before: {load}")  # fmt: skip
        with processes(arguments, arguments.tokens, work, logs) as (other, engine):
            run_races(arguments, other, engine, work, races)
        say(f"starting them again, for outputs of {arguments.checked_tokens} tokens that are checked")
        with processes(arguments, arguments.checked_tokens, work, logs) as (other, engine):
            size = run_checks(arguments, other, engine, work, checks)
    for times in races.values():
        say(f"BATCH {times}")
    figures = (races.get(JUDGED_ROWS) or next(iter(races.values()))).as_json()
    return {
        "model": MODEL, "threads": arguments.threads, "load_before": load,
        "output_tokens": arguments.tokens, "checked_output_tokens": arguments.checked_tokens,
        **{name: figures[name] for name in ("cost_percent", "processor_cost_percent")},
        "vllm_tokens_per_second": figures["plain_tokens_per_second"],
        "vllm_proofs_tokens_per_second": figures["proofs_tokens_per_second"],
        "vllm_greedy_tokens_per_second": figures["greedy_tokens_per_second"],
        "by_rows": {rows: times.as_json() for rows, times in races.items()},
        **checked(checks, size),
    }  # fmt: skip


@contextmanager
def processes(
    arguments: argparse.Namespace, tokens: int, work: Workload, logs: Path
) -> Iterator[tuple[Plain, VllmEngine]]:
    """Plain vLLM, and ours, for outputs of `tokens`, with the same room for rows, sequences and what is cached."""
    prompt_tokens, rows = preset(MODEL).max_prompt_tokens, max(*arguments.rows, JUDGED_ROWS)
    policy = Policy(1.0, tokens, frozenset(), group_size=1, max_prompt_tokens=prompt_tokens)
    settings = Settings(str(work.folder), policy, policy.max_sequence, rows, None, CPU_CACHE_BYTES, 1, True)
    engine = VllmEngine(policy, Hardware(threads=arguments.threads), logs / "speed.log", batch_rows=rows)
    with plain(settings, arguments.threads, logs / "plain.log") as other, closing(engine):
        engine.load(work.folder)
        yield other, engine


def run_races(
    arguments: argparse.Namespace, other: Plain, engine: VllmEngine, work: Workload, races: Mapping[int, Times]
) -> None:
    """`pairs` for each size, after one that warms up."""
    for rows, times in races.items():
        list(race(other, engine, Times(rows, times.tokens), 1, work.prompts))
        for _ in race(other, engine, times, arguments.pairs, work.prompts):
            plainly, proving = (times.tokens / runs.seconds[-1] for runs in (times.plain, times.proofs))
            say(
                f"batch {rows}, pair {len(times.plain.seconds)} of {arguments.pairs * arguments.starts}: "
                f"cost {100 * (1 - proving / plainly):+.1f}%, plain {plainly:.1f} tokens/s, with proofs {proving:.1f}"
            )


def run_checks(
    arguments: argparse.Namespace, other: Plain, engine: VllmEngine, work: Workload, times: Checks
) -> dict[str, float]:
    """`rounds`, after one that warms up. Bytes for each token that was made."""
    policy = Policy(1.0, arguments.checked_tokens, frozenset(), group_size=1)
    transformers = TransformersEngine(policy, arguments.threads)
    with closing(transformers):
        transformers.load(work.folder)
        engines = Engines(other, engine, transformers, Bare(work.folder))
        check(engines, Checks(times.tokens), 0, JUDGED_ROWS, work.prompts)
        for number in range(1, 1 + arguments.rounds):
            rollouts = check(engines, times, number, JUDGED_ROWS, work.prompts)
            made, looked = times.vllm.seconds, times.vllm_replay.seconds
            say(f"checking, round {len(made)}: made in {made[-1]:.1f} s, looked at again in {looked[-1]:.1f} s by vLLM")
    return bytes_per_token(rollouts)


def checked(times: Checks, size: Mapping[str, float]) -> dict[str, Any]:
    shares = times.shares()
    for name, (by_clock, by_processor) in shares.items():
        say(f"{name}: {by_clock} of what vLLM took to generate, of processor time {by_processor}")
    rates = times.transformers.rate(times.tokens), times.vllm.rate(times.tokens)
    say(f"transformers generates {rates[0]:.1f} tokens/s, vLLM in the same rounds {rates[1]:.1f}")
    say(
        f"bytes a token, of full chunks: proofs {size['proofs']:.2f} (paper {PAPER_BYTES_PER_TOKEN:.2f}), "
        f"whole file {size['file']:.2f}"
    )
    checker = min(("transformers replay", "vllm replay"), key=lambda name: shares[name][0].median)
    by_clock, by_processor = shares[checker]
    return {
        "verify_by": checker,
        "verify_ratio": round(by_clock.median, 3),
        "processor_verify_ratio": round(by_processor.median, 3),
        "verify_shares": {name: [round(spread.median, 3) for spread in both] for name, both in shares.items()},
        "transformers_tokens_per_second": round(rates[0], 1),
        "proof_bytes_per_token": round(size["proofs"], 3),
        "file_bytes_per_token": round(size["file"], 3),
    }


# --- Agreement


def agreement(arguments: argparse.Namespace, work: Workload, logs: Path) -> dict[str, Any]:
    """Of one workload; the shipped thresholds judge."""
    spec = build_spec(MODEL, work.folder, Plan("engine-benchmark"))
    heading = f"agreement on {work.name}"
    made, looks = play(
        work, arguments.slots, arguments.threads, logs / f"{work.name}.log", lambda line: say(f"{heading}, {line}")
    )
    pairs = {pair: pair_figures(spec, slots) for pair, slots in looks.items()}
    for (maker, checker), found in pairs.items():
        say(f"{maker} checked by {checker}: {found}")
    same, across = same_share(made), 1 - pairs["vllm", "transformers"].missed_share
    size = bytes_per_token([rollout for slot in made["vllm"] for rollout in slot])
    say(
        f"{heading}: {100 * same:.2f}% of tokens sampled after the same tokens are the same; {100 * across:.2f}% of "
        f"vLLM's are the seeded choice for transformers; bytes a token: proofs {size['proofs']:.2f}, "
        f"whole file {size['file']:.2f}"
    )
    found = {
        "same_token_share": round(across, 5),
        "agreeing_token_share": round(same, 5),
        "rejected": sum(figures.leaves_rejected + figures.slots_rejected for figures in pairs.values()),
        "pairs": {" by ".join(pair): figures.as_json() for pair, figures in pairs.items()},
        "proof_bytes_per_token": round(size["proofs"], 3),
        "file_bytes_per_token": round(size["file"], 3),
    }
    shared = {name: found[name] for name in ("same_token_share", "agreeing_token_share")} if work.name == "task" else {}
    return {**shared, f"agreement_{work.name}": found}


def missed(summary: dict[str, Any], quick: bool) -> list[str]:
    """Targets that were not reached, in words; a few short runs say nothing of speed."""
    found = []
    if not quick and JUDGED_ROWS in summary["by_rows"] and summary["cost_percent"] > MOST_COST_PERCENT:
        found.append(
            f"proofs cost {summary['cost_percent']}% of vLLM's speed, at most {MOST_COST_PERCENT}% is aimed at"
        )
    if not quick and summary["verify_ratio"] > MOST_VERIFY_RATIO:
        found.append(f"checking takes {summary['verify_ratio']} of generating, at most {MOST_VERIFY_RATIO} is aimed at")
    for name, value in summary.items():
        if name.startswith("agreement_") and value["rejected"]:
            found.append(f"{name}: honest work was rejected {value['rejected']} times")
    return found


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
