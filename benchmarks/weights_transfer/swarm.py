"""Nodes that fetch at the same time from one origin of limited speed, and from each other."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from .nodes import lab


@dataclass(frozen=True, slots=True)
class Swarm:
    """`origin_factor` is what the origin sent, in files; `cpu_share` what the processes took of all processors."""

    seconds: float
    origin_factor: float
    cpu_share: float
    rss_increase_mib: float


def gather(source: Path, count: int, megabytes_per_second: float, uplink_megabytes: float = 0.0) -> Swarm:
    """The nodes' uplinks are not limited unless `uplink_megabytes` a second are given for each."""
    size = (source / "model.bin").stat().st_size
    with lab() as here:
        origin = here.peer("origin")
        root = origin.ask({"add": str(source)})["root"]
        line = here.begin("line.py", origin.port, megabytes_per_second)
        nodes = [here.peer(f"node-{number}") for number in range(count)]
        lines = [here.begin("line.py", node.port, uplink_megabytes) for node in nodes] if uplink_megabytes else nodes
        for each in (origin, *nodes):
            each.ask({"idle": 1})
        published = time.time()
        for node, me in zip(nodes, lines, strict=True):
            others = [other.url for other in lines if other is not me]
            node.tell({"fetch": root, "sources": [line.url, *others], "me": me.url})
        seconds = max(node.answer()["done"] for node in nodes) - published
        sent = line.ask({})
        figures = [each.ask({"figures": 1}) for each in (origin, *nodes)]
        busy = sent["cpu_seconds"] + sum(each["cpu_seconds"] for each in figures)
        return Swarm(
            seconds,
            sent["sent"] / size,
            busy / seconds / len(os.sched_getaffinity(0)),
            max(each["rss_increase_mib"] for each in figures),
        )
