"""What seeded sampling costs: the compiled pass against plain noise, a sum and an argmax, one core, in turns.

    python benchmarks/noise.py
    python benchmarks/noise.py --turns 25

CPU time of the thread first: it is what a busy machine changes least. The last line of output is a JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from hashing import device, fused
from hashing.sampling import Places, key_of, noise, places

VOCABULARY = 49_152  # SmolLM2's
BATCHES = (1, 8, 32, 128)
TEMPERATURE = 1.0
SEED = b"\x15" * 32


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Medians of a step."""

    cpu: float
    wall: float


def flat(rows: int) -> torch.Tensor:
    """Logits that rule no token out."""
    return torch.zeros(rows, VOCABULARY, dtype=torch.bfloat16)


def realistic(rows: int) -> torch.Tensor:
    """A language model's, by shape: a wide middle, and a few tokens far above it."""
    random = np.random.default_rng(1)
    logits_BV = random.normal(0, 3, size=(rows, VOCABULARY))
    logits_BV[:, :20] += 10 + random.exponential(3, size=(rows, 20))
    return torch.from_numpy(logits_BV).to(torch.bfloat16)


def plain(logits_BV: torch.Tensor, rows: Places) -> list[int]:
    """Tokens by the reference: a matrix of noise, a sum, an argmax; and log-probabilities."""
    noise_BV = noise(SEED, rows[:, 1].tolist(), rows[:, 0].tolist(), VOCABULARY)
    scaled_BV = logits_BV.float() / TEMPERATURE
    tokens_B = device.first_argmax(scaled_BV + torch.from_numpy(noise_BV))
    assert (scaled_BV.gather(1, tokens_B[:, None])[:, 0] - scaled_BV.logsumexp(dim=1)).isfinite().all()
    return [int(token) for token in tokens_B]


def compiled(logits_BV: torch.Tensor, rows: Places) -> list[int]:
    patterns_BV = logits_BV.view(torch.int16).numpy().view(np.uint16)
    return [int(token) for token in fused.row_scores(patterns_BV, rows, TEMPERATURE).tokens]


def by_torch(logits_BV: torch.Tensor, rows: Places) -> list[int]:
    return [int(token) for token in device.row_scores(logits_BV, rows, TEMPERATURE).tokens]


def measure(logits_BV: torch.Tensor, turns: int) -> dict[str, Milliseconds]:
    """Each way, in turns, over the positions of a rollout; they must agree on every token."""
    ways: tuple[Callable[[torch.Tensor, Places], list[int]], ...] = (plain, compiled, by_torch)
    spent: dict[str, list[tuple[float, float]]] = {way.__name__: [] for way in ways}
    count = len(logits_BV)
    for turn in range(turns + 1):
        rows = places([key_of(SEED)] * count, range(count), [turn] * count)
        tokens = []
        for way in ways:
            cpu, wall = time.thread_time(), time.perf_counter()
            tokens.append(way(logits_BV, rows))
            spent[way.__name__].append((time.thread_time() - cpu, time.perf_counter() - wall))
        assert tokens[0] == tokens[1] == tokens[2]
    medians = {
        name: [1e3 * statistics.median(column) for column in zip(*each[1:], strict=True)]
        for name, each in spent.items()
    }
    return {name: Milliseconds(*(round(value, 3) for value in pair)) for name, pair in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9, help="measured after a first one, which compiles")
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    found = {}
    for make in (flat, realistic):
        for count in BATCHES:
            ways = measure(make(count), turns)
            ratio = ways["plain"].cpu / ways["compiled"].cpu
            found[f"{make.__name__}_{count}"] = {"ratio": round(ratio, 1)} | {n: asdict(way) for n, way in ways.items()}
            print(f"{ratio:5.1f} times, {make.__name__}, batch {count}: CPU ms {ways['plain'].cpu:.1f} plain, "
                  f"{ways['compiled'].cpu:.2f} compiled, {ways['by_torch'].cpu:.1f} by torch; "
                  f"wall {ways['plain'].wall:.1f}, {ways['compiled'].wall:.2f}, {ways['by_torch'].wall:.1f}",
                  flush=True)  # fmt: skip
    summary = {
        "ratio_32": found["realistic_32"]["ratio"],
        "milliseconds_32": found["realistic_32"]["compiled"]["cpu"],
        "milliseconds_32_flat": found["flat_32"]["compiled"]["cpu"],
        "vocabulary": VOCABULARY,
        "turns": turns,
    }
    print(json.dumps(summary | {"measured": found}))


if __name__ == "__main__":
    main()
