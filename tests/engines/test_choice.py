"""Which engine a name comes to, and what may not be asked for."""

from pathlib import Path

import pytest

from node.engines.base import Policy
from node.engines.choice import EngineChoice, make_engine
from node.engines.scripted import ScriptedEngine
from node.engines.transformers import TransformersEngine
from node.engines.vllm import installed
from node.errors import ConfigError

POLICY = Policy(1.0, 8, frozenset({1}), 2)


def test_an_engine_goes_by_its_name(tmp_path: Path) -> None:
    assert isinstance(make_engine(EngineChoice("scripted"), POLICY, tmp_path / "engine"), ScriptedEngine)
    assert isinstance(make_engine(EngineChoice("transformers", 1), POLICY, tmp_path / "engine"), TransformersEngine)
    with pytest.raises(ConfigError, match=r"no engine 'magic': choose one of auto, transformers, vllm$"):
        EngineChoice("magic")


def test_whoever_only_checks_gets_transformers_when_the_choice_is_left_to_us(tmp_path: Path) -> None:
    made = make_engine(EngineChoice("auto", 1), POLICY, tmp_path / "engine", generates=False)

    assert isinstance(made, TransformersEngine)


@pytest.mark.skipif(installed.is_installed(), reason="what is said where vLLM is not installed")
def test_vllm_is_not_picked_and_says_how_to_get_it_where_it_is_not_installed(tmp_path: Path) -> None:
    assert isinstance(make_engine(EngineChoice("auto", 1), POLICY, tmp_path / "engine"), TransformersEngine)
    with pytest.raises(ConfigError, match=r'not installed: pip install "intellect-node\[vllm\]"'):
        make_engine(EngineChoice("vllm"), POLICY, tmp_path / "engine")


def test_gpus_that_are_not_here_are_refused() -> None:
    absent = max(installed.gpus(), default=-1) + 1

    with pytest.raises(ConfigError, match=f"there is no GPU {absent} to use in this machine: "):
        EngineChoice("vllm", gpus=(absent,)).groups()
    with pytest.raises(ConfigError, match="names a GPU twice: 0, 0"):
        EngineChoice("vllm", gpus=(0, 0)).groups()


def test_transformers_shares_no_model_among_gpus() -> None:
    with pytest.raises(ConfigError, match="only the vllm engine"):
        EngineChoice("transformers", ranks=2)
    with pytest.raises(ConfigError, match="uses one GPU: name one with --gpus"):
        EngineChoice("transformers", gpus=(0, 1))
