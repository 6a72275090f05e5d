"""How long a broadcast takes to 10 to 10,000 nodes, by a simulation of who sends which piece to whom.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --nodes 10 100

Time goes in slots, one piece over a node's uplink. In each the origin sends pieces to nodes that fetch their own part
of what nobody around them has, and every node sends what it has, the rarest piece first, to one that lacks it; whom a
node knows is drawn anew in each slot, as nodes look at others anew (`node/shards/exchange.py`). Slots are a straight
line over the number of pieces, so two runs with few pieces say what 4 MiB chunks do. What the simulation leaves out
comes from a measured swarm of 8 nodes: `MEASURED_SECONDS` against the same swarm simulated, where that is more. The
last line is one JSON object. Takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from itertools import product

import numpy as np

BYTES = 62e9
CHUNK_BYTES = 4 << 20
ORIGIN_BITS_S = 590e6  # INTELLECT-2 (arXiv 2505.07291): 62 GB in 14 minutes
WATCHED = 16  # `MAX_WATCHED` in node/shards/transfer.py
TRIES = 4  # of a node in a slot to find one that is free and has something
PIECES = (64, 192)
MEASURED_NODES, MEASURED_BYTES, MEASURED_UPLINK_BYTES_S = 8, 2**28, 20e6
MEASURED_SECONDS = 24.1  # `python benchmarks/weights.py --parts calibration`, 2026-11-30: median of 20.3, 24.1, 24.7
FIRST_CHUNK_SECONDS = 0.15  # over four hops, measured there: manifest, first chunk, hashing
NODES = (10, 100, 1_000, 10_000)
UPLINK_SHARES = (1, 5)  # of the origin's rate: as much, or a fifth


@dataclass(frozen=True, slots=True)
class Setting:
    """`shares` is how often a node's uplink goes into the origin's, which is what any node can receive."""

    nodes: int
    shares: int


@dataclass(slots=True)
class Swarm:
    """Who has which piece, shape (nodes, pieces)."""

    setting: Setting
    have: np.ndarray
    rng: np.random.Generator
    sent_by_origin: int = 0

    def slot(self) -> None:
        """One piece over every uplink; what came in this slot is handed on in the next."""
        before, room = self.have.copy(), np.full(self.setting.nodes, self.setting.shares)
        watched = self.rng.integers(self.setting.nodes, size=(self.setting.nodes, min(WATCHED, self.setting.nodes)))
        self._from_origin(before, watched, room)
        busy = np.zeros(self.setting.nodes, bool)
        for attempt in range(TRIES):
            self._from_each_other(before, watched[:, attempt % watched.shape[1]], room, busy)

    def _from_origin(self, before: np.ndarray, watched: np.ndarray, room: np.ndarray) -> None:
        lacking = np.flatnonzero(~before.all(axis=1))
        for node in self.rng.permutation(lacking)[: self.setting.shares] if len(lacking) else ():
            unseen = ~self.have[node] & ~before[watched[node]].any(axis=0)
            missing = np.flatnonzero(unseen if unseen.any() else ~self.have[node])
            if len(missing):
                counts = self.have[:, missing].sum(axis=0)  # parts do not overlap: the origin sends the next new one
                self.have[node, missing[np.argmin(counts + self.rng.random(len(missing)))]] = True
                room[node] -= 1
                self.sent_by_origin += 1

    def _from_each_other(self, before: np.ndarray, source: np.ndarray, room: np.ndarray, busy: np.ndarray) -> None:
        asking = self.rng.permutation(np.flatnonzero((room > 0) & ~self.have.all(axis=1)))
        asking = asking[~busy[source[asking]] & (source[asking] != asking)]
        useful = before[source[asking]] & ~self.have[asking]
        asking, useful = asking[useful.any(axis=1)], useful[useful.any(axis=1)]
        _, first = np.unique(source[asking], return_index=True)  # one uplink, one piece
        asking, useful = asking[first], useful[first]
        rarity = before.sum(axis=0) + self.rng.random(before.shape[1])
        self.have[asking, np.where(useful, rarity, np.inf).argmin(axis=1)] = True
        room[asking] -= 1
        busy[source[asking]] = True


def slots(setting: Setting, pieces: int) -> tuple[int, float]:
    """Until every node has every piece, and how often the origin sent each piece."""
    swarm = Swarm(setting, np.zeros((setting.nodes, pieces), bool), np.random.default_rng(1))
    count = 0
    while not swarm.have.all():
        swarm.slot()
        count += 1
    return count, swarm.sent_by_origin / pieces


@dataclass(frozen=True, slots=True)
class Line:
    """Slots = `start` + `each` x pieces, and the pieces that the origin sends for each one."""

    start: float
    each: float
    origin: float

    def seconds(self, size: float, piece: float, uplink_bytes_s: float) -> float:
        return (self.start + self.each * size / piece) * piece / uplink_bytes_s


def fitted(setting: Setting) -> Line:
    (few, _), (many, origin) = (slots(setting, pieces) for pieces in PIECES)
    each = (many - few) / (PIECES[1] - PIECES[0])
    return Line(max(few - each * PIECES[0], 0.0), each, origin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="*", type=int, default=NODES)
    arguments = parser.parse_args()
    overhead = calibration()
    print(f"the measured swarm of {MEASURED_NODES} took {overhead:.3f} times as long as simulated", flush=True)
    longer = max(overhead, 1.0)
    found = []
    for nodes, shares in product(arguments.nodes, UPLINK_SHARES):
        line = fitted(Setting(nodes, shares))
        seconds = longer * line.seconds(BYTES, CHUNK_BYTES, ORIGIN_BITS_S / 8 / shares)
        seconds += FIRST_CHUNK_SECONDS * math.log2(nodes) / 4
        ideal = BYTES * max(8 / ORIGIN_BITS_S, nodes * 8 / (ORIGIN_BITS_S * (1 + nodes / shares)))
        alone = nodes * BYTES * 8 / ORIGIN_BITS_S
        found.append(
            {
                "nodes": nodes,
                "uplink_mbit_s": round(ORIGIN_BITS_S / 1e6 / shares),
                "minutes": round(seconds / 60, 1),
                "ideal_minutes": round(ideal / 60, 1),
                "origin_alone_hours": round(alone / 3600, 1),
                "origin_factor": round(line.origin, 2),
            }
        )
        print(found[-1], flush=True)
    print(json.dumps({"bytes": BYTES, "overhead": round(overhead, 3), "broadcasts": found}))


def calibration() -> float:
    """Measured seconds over simulated ones, of the swarm that was measured."""
    line = fitted(Setting(MEASURED_NODES, 1))
    return MEASURED_SECONDS / line.seconds(MEASURED_BYTES, CHUNK_BYTES, MEASURED_UPLINK_BYTES_S)


if __name__ == "__main__":
    main()
