"""A node whose model is shared by two ranks: `python node_with_ranks.py FOLDER OTHER CHANGE OUT`.

It does what the test compares, writes what came of it to OUT, and then generates until it is killed.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from node.engines.vllm.engine import environment
from node.engines.vllm.messages import Generate, Order, Patch, Prefill, Settings, Swap, WeightsDigest
from node.engines.vllm.process import EngineProcess, ask
from tests.vllm.agreement import POLICY, quiet

SEED = b"\x61" * 32
ROWS = tuple((row, (4, 70 + row, *range(100, 100 + row), 5)) for row in range(8))
PATIENCE_SECONDS = 240.0


def main() -> None:
    folder, other, change, out = sys.argv[1:]
    update = pickle.loads(Path(change).read_bytes())
    settings = Settings(folder, POLICY, 256, 8, 32, 1 << 26, 2, True)
    process = EngineProcess(settings, environment((), 1), Path(out).with_suffix(".log"))
    process.started()

    def answer(order: Order) -> Any:
        return ask([(process, order)], quiet, PATIENCE_SECONDS)[0]

    found: dict[str, Any] = {"digest": answer(WeightsDigest()), "samples": answer(Generate(SEED, ROWS))}
    outputs = tuple((row, prompt, s.output_ids) for (row, prompt), s in zip(ROWS, found["samples"], strict=True))
    found["replays"] = answer(Prefill(SEED, outputs))
    answer(Patch((update,)))
    found |= {"patched digest": answer(WeightsDigest()), "patched samples": answer(Generate(SEED, ROWS))}
    answer(Swap(other))
    found |= {"swapped digest": answer(WeightsDigest()), "swapped samples": answer(Generate(SEED, ROWS))}
    Path(out).with_suffix(".part").write_bytes(pickle.dumps(found))
    Path(out).with_suffix(".part").rename(out)
    while True:
        answer(Generate(SEED, ROWS))


if __name__ == "__main__":
    main()
