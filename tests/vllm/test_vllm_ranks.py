"""A model whose parts two ranks hold: what it generates and what its weights are is what one rank's would be.

The vocabulary of 264 is padded to 320, 160 rows a rank, so that the second has fewer than the first; and when the node
is gone, so are the engine's process and both ranks.
"""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from node.engines.transformers import TransformersEngine
from tests.vllm.agreement import POLICY, require_replayed, require_sampled, rollouts
from tests.vllm.node_with_ranks import ROWS, SEED
from tests.vllm.processes import command, engines, family, until
from tests.vllm.weight_files import change, changed

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

GONE_SECONDS = 15.0
START_SECONDS = 300.0  # three processes that import vLLM, where others run too
ROOT = Path(__file__).parents[2]
PATCHED = "model.embed_tokens.weight"


def fresh(folder: Path) -> TransformersEngine:
    engine = TransformersEngine(POLICY, 1)
    engine.load(folder)
    return engine


def test_two_ranks_are_as_one_and_end_with_their_node(
    tiny_folder: Path, other_folder: Path, reference: TransformersEngine, tmp_path: Path
) -> None:
    update, out = change(tiny_folder, PATCHED), tmp_path / "found"
    (tmp_path / "change").write_bytes(pickle.dumps(update))
    arguments = [str(tiny_folder), str(other_folder), str(tmp_path / "change"), str(out)]
    node = subprocess.Popen([sys.executable, "-m", "tests.vllm.node_with_ranks", *arguments], cwd=ROOT)
    try:
        until(lambda: out.exists() or node.poll() is not None, START_SECONDS)
        [engine] = engines(node.pid)
        members = family(engine)
        ranks = [member for member in members if "VLLM::Worker" in command(member)]
    finally:
        os.kill(node.pid, signal.SIGKILL)
        node.wait()

    assert len(ranks) == 2
    until(lambda: not any(map(command, members)), GONE_SECONDS)
    found = pickle.loads(out.read_bytes())
    patched, swapped = fresh(changed(tiny_folder, tmp_path / "patched", update)), fresh(other_folder)
    assert found["digest"] == reference.weights_digest()
    assert found["patched digest"] == patched.weights_digest()
    assert found["swapped digest"] == swapped.weights_digest()
    require_sampled(reference, SEED, ROWS, found["samples"])
    require_sampled(patched, SEED, ROWS, found["patched samples"])
    require_sampled(swapped, SEED, ROWS, found["swapped samples"])
    require_replayed(reference, SEED, rollouts(ROWS, found["samples"]), found["replays"])
