"""Measures how weights travel: one hop, chains behind a slow origin, a swarm; beside shardcast and libtorrent.

    python benchmarks/weights.py
    python benchmarks/weights.py --quick
    python benchmarks/weights.py --parts hop chain others swarm
    python benchmarks/weights.py --parts calibration --mib 256

shardcast 0.3.2 and libtorrent come with `pip install -e '.[bench]'`; shardcast also needs wget. What is missing is
said and left out. Every node is a process with this project's store, server and downloader; files lie in /dev/shm,
since a disk would hide the network; a slow origin is one behind a relay of TCP that lets so many bytes a second through
(`weights_transfer/line.py`). The last line is one JSON object. Exit code 1: a figure misses its target, not with
--quick. Takes 7 minutes, with --quick 2, on two cores with nothing else on them, and 12 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from weights_transfer import chains, one_hop, swarm
from weights_transfer.nodes import payload

PARTS = ("hop", "chain", "others", "swarm")
CALIBRATION = "calibration"  # of benchmarks/scaling.py, when it is asked for: a minute and a half
MIB = 1 << 20
CHAIN_MB_S, SWARM_MB_S = 50.0, 100.0  # of the origin
CHAINS = (1, 2, 4, 8)
SHARDCAST_CHAINS = (1, 2, 4)
FIRST_CHUNK_DEPTH = 4
SWARM_NODES = 8
UPLINK_MB_S = 50.0  # of the origin and of every node, in the swarm whose uplinks are alike
CALIBRATION_MB_S, CALIBRATION_RUNS = 20.0, 3  # likewise; so slow that no processor is the limit
LEAST_RATIO_SHARDCAST, LEAST_RATIO_CEILING = 2.5, 0.5
MOST_CHAIN_RATIO, MOST_FIRST_CHUNK_SECONDS = 1.02, 0.5
MOST_ORIGIN_FACTOR, MOST_SWARM_RATIO = 1.3, 2.0
MOST_RSS_MIB = 64.0


def main() -> None:
    arguments = _arguments()
    began = time.monotonic()
    present = _present()
    summary: dict[str, Any] = {"bytes": arguments.mib * MIB, "load_before": round(os.getloadavg()[0], 2), **present}
    with payload(arguments.mib * MIB) as source:
        for part in arguments.parts:
            for name, value in RUN[part](arguments, source, present).items():
                before = summary.get(name, 0.0)
                summary[name] = max(before, value) if name == "rss_increase_mib" else value
    summary["seconds"] = round(time.monotonic() - began, 1)
    summary["missed"] = missed(summary)
    for line in summary["missed"]:
        say(f"missed: {line}")
    print(json.dumps(summary))
    sys.exit(1 if summary["missed"] and not arguments.quick else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a smaller file and fewer rounds, which show that it works"
    )
    parser.add_argument("--parts", nargs="*", choices=(*PARTS, CALIBRATION), default=PARTS)
    parser.add_argument("--mib", type=int, help="of the file")
    parser.add_argument("--rounds", type=int, help="of one hop")
    arguments = parser.parse_args()
    arguments.mib = arguments.mib or (256 if arguments.quick else 1024)
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    return arguments


def _present() -> dict[str, bool]:
    found = {"shardcast": find_spec("shardcast") is not None, "libtorrent": find_spec("libtorrent") is not None}
    for name, here in found.items():
        if not here:
            say(f"{name} is not installed, so it is left out: pip install -e '.[bench]'")
    if found["shardcast"] and which("wget") is None:
        say("wget is missing, which shardcast downloads with, so shardcast is left out")
        found["shardcast"] = False
    return found


def hop(arguments: argparse.Namespace, source: Path, present: dict[str, bool]) -> dict[str, Any]:
    for side, hops in one_hop.race(source, arguments.rounds, present["shardcast"]):
        seconds = hops.seconds[side][-1]
        say(f"one hop, {side}: {seconds:.2f} s, {hops.size / 1e6 / seconds:.0f} MB/s")
    return {**hops.as_json(), "rss_increase_mib": round(max(hops.rss_increase_mib), 1)}


def chain(arguments: argparse.Namespace, source: Path, _: dict[str, bool]) -> dict[str, Any]:
    ideal = arguments.mib * MIB / 1e6 / CHAIN_MB_S
    say(f"chains behind an origin of {CHAIN_MB_S:g} MB/s; ideal {ideal:.2f} s")
    ours: dict[int, chains.Chain] = {}
    for depth in CHAINS:
        ours[depth] = chains.ours(source, depth, CHAIN_MB_S)
        say(
            f"chain of {depth}: {ours[depth].seconds:.2f} s, first chunk at its end after "
            f"{ours[depth].first_chunk_seconds:.2f} s"
        )
    return {
        "chain_depths": CHAINS,
        "chain_seconds": [round(each.seconds, 2) for each in ours.values()],
        "chain_ideal_seconds": round(ideal, 2),
        "first_chunk_seconds": round(ours[FIRST_CHUNK_DEPTH].first_chunk_seconds, 3),
        "rss_increase_mib": round(max(each.rss_increase_mib for each in ours.values()), 1),
    }


def others(arguments: argparse.Namespace, source: Path, present: dict[str, bool]) -> dict[str, Any]:
    """The same chains of other programs."""
    found: dict[str, Any] = {}
    if present["shardcast"]:
        depths = SHARDCAST_CHAINS[: 2 if arguments.quick else 3]
        found["shardcast_chain_seconds"] = [round(chains.shardcast(source, n, CHAIN_MB_S), 2) for n in depths]
        say(f"shardcast, chains of {depths}: {found['shardcast_chain_seconds']} s")
    if present["libtorrent"]:
        found["libtorrent_chain4_seconds"] = round(chains.libtorrent(source, FIRST_CHUNK_DEPTH, CHAIN_MB_S), 2)
        say(f"libtorrent, chain of {FIRST_CHUNK_DEPTH}: {found['libtorrent_chain4_seconds']} s")
    return found


def gathered(arguments: argparse.Namespace, source: Path, _: dict[str, bool]) -> dict[str, Any]:
    alone = chains.ours(source, 1, SWARM_MB_S).seconds
    say(f"one node behind an origin of {SWARM_MB_S:g} MB/s: {alone:.2f} s")
    found = swarm.gather(source, SWARM_NODES, SWARM_MB_S)
    say(
        f"{SWARM_NODES} nodes: {found.seconds:.2f} s, the origin sent {found.origin_factor:.2f} files; "
        f"they took {100 * found.cpu_share:.0f}% of all processors"
    )
    even = swarm.gather(source, SWARM_NODES, UPLINK_MB_S, UPLINK_MB_S)
    say(
        f"{SWARM_NODES} nodes, every uplink {UPLINK_MB_S:g} MB/s: {even.seconds:.2f} s, "
        f"the origin sent {even.origin_factor:.2f} files"
    )
    return {
        "swarm8_even_seconds": round(even.seconds, 2),
        "swarm8_even_origin_factor": round(even.origin_factor, 3),
        "swarm8_alone_seconds": round(alone, 2),
        "swarm8_seconds": round(found.seconds, 2),
        "swarm8_origin_factor": round(found.origin_factor, 3),
        "swarm8_cpu_share": round(found.cpu_share, 3),
        "rss_increase_mib": round(found.rss_increase_mib, 1),
    }


def calibration(_arguments: argparse.Namespace, source: Path, _: dict[str, bool]) -> dict[str, Any]:
    """What the simulation is compared with: `MEASURED_SECONDS` of benchmarks/scaling.py is the median, of 256 MiB."""
    found = [swarm.gather(source, SWARM_NODES, CALIBRATION_MB_S, CALIBRATION_MB_S) for _ in range(CALIBRATION_RUNS)]
    seconds = [round(each.seconds, 2) for each in found]
    share = max(each.cpu_share for each in found)
    say(f"{SWARM_NODES} nodes, every uplink {CALIBRATION_MB_S:g} MB/s: {seconds} s, {share:.0%} of all processors")
    return {"calibration_seconds": seconds, "calibration_cpu_share": round(share, 3)}


RUN = {"hop": hop, "chain": chain, "others": others, "swarm": gathered, CALIBRATION: calibration}


def missed(summary: dict[str, Any]) -> list[str]:
    """Targets that were not reached, in words; of what was measured."""
    ideal, alone = summary.get("chain_ideal_seconds", 1.0), summary.get("swarm8_alone_seconds", 1.0)
    least = {"one_hop_ratio_shardcast": LEAST_RATIO_SHARDCAST, "one_hop_ratio_ceiling": LEAST_RATIO_CEILING}
    most = {
        "chain_seconds": MOST_CHAIN_RATIO * ideal, "first_chunk_seconds": MOST_FIRST_CHUNK_SECONDS,
        "swarm8_origin_factor": MOST_ORIGIN_FACTOR, "swarm8_seconds": MOST_SWARM_RATIO * alone,
        "rss_increase_mib": MOST_RSS_MIB,
    }  # fmt: skip
    found = [f"{name} is {summary[name]}, at least {bound} is aimed at" for name, bound in least.items()
             if summary.get(name, bound) < bound]  # fmt: skip
    for name, bound in most.items():
        value = summary.get(name, 0.0)
        worst = max(value) if isinstance(value, list) else value
        if worst > bound:
            found.append(f"{name} is {worst}, at most {bound:.2f} is aimed at")
    return found


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
