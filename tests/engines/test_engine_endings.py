"""How an engine's process tells why it ended, with a library that fails in vLLM's place."""

from pathlib import Path

import pytest

from node.engines.base import Policy
from node.engines.vllm.messages import Settings
from node.engines.vllm.process import EngineProcess
from node.errors import EngineError

SETTINGS = Settings("none", Policy(1.0, 8, frozenset({0}), 1, 8), 16, 4, None, 1 << 26, 1, True)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("ValueError('no cache fits')", r"gave up: ValueError: no cache fits"),
        ("AssertionError('of vLLM')", r"ended with 1\. (.*\n)*.*raise AssertionError.*\n +AssertionError: of vLLM"),
    ],
)
def test_what_a_library_refuses_is_said_and_what_breaks_in_it_is_in_the_log_with_its_place(
    tmp_path: Path, raised: str, said: str
) -> None:
    (tmp_path / "vllm.py").write_text(f"raise {raised}\n")

    process = EngineProcess(SETTINGS, {"PYTHONPATH": str(tmp_path)}, tmp_path / "engine.log")
    try:
        with pytest.raises(EngineError, match=said):
            process.started()
    finally:
        process.close()
