"""Tiny models of two seeds, and the engines loaded with the first."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.engines.base import Engine, Policy
from node.engines.scripted import ScriptedEngine
from node.engines.transformers import TransformersEngine
from node.engines.vllm.engine import Hardware, VllmEngine
from node.models.tiny import build_tiny

MakeEngine = Callable[[Policy], Engine]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    build_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    build_tiny(folder, seed=1)
    return folder


@pytest.fixture(scope="session")
def vllm_engines(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Iterator[MakeEngine]:
    """One for each policy, because they start in 15 seconds and more; what was closed is started again."""
    logs = tmp_path_factory.mktemp("vllm")
    made: dict[Policy, VllmEngine] = {}

    def make(policy: Policy) -> Engine:
        hardware = Hardware(threads=1, cache_bytes=1 << 26)
        engine = made.setdefault(policy, VllmEngine(policy, hardware, logs / f"{len(made)}.log", batch_rows=5))
        engine.load(tiny_folder)
        return engine

    yield make
    for engine in made.values():
        engine.close()


@pytest.fixture(params=["scripted", "transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def make_engine(request: pytest.FixtureRequest, tiny_folder: Path) -> Iterator[MakeEngine]:
    if request.param == "vllm":
        yield request.getfixturevalue("vllm_engines")
        return
    made: list[Engine] = []

    def make(policy: Policy) -> Engine:
        engine = ScriptedEngine(policy) if request.param == "scripted" else TransformersEngine(policy, 1, batch_rows=5)
        engine.load(tiny_folder)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
