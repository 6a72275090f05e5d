"""vLLM in a process that is driven step by step, engines that are shared, and transformers to hold them against."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from node.engines.transformers import TransformersEngine
from node.engines.vllm.messages import Settings
from node.models.tiny import build_tiny
from tests.vllm import running
from tests.vllm.agreement import POLICY

Run = Callable[[Settings, Sequence[running.Call]], running.Record]


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
def reference(tiny_folder: Path) -> TransformersEngine:
    engine = TransformersEngine(POLICY, 1)
    engine.load(tiny_folder)
    return engine


@pytest.fixture(scope="session")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, get_context("spawn"), running.prepare) as pool:
        yield pool


@pytest.fixture
def run(pool: ProcessPoolExecutor) -> Run:
    """Runs calls in vLLM's process."""
    return lambda settings, calls: pool.submit(running.run, settings, calls).result()


@pytest.fixture
def settings(tiny_folder: Path) -> Callable[..., Settings]:
    """Of an engine with the tiny model and room for 256 tokens of a sequence, changed as asked."""

    def changed(**changes: Any) -> Settings:
        return replace(Settings(str(tiny_folder), POLICY, 256, 4, None, 1 << 25, 1, True), **changes)

    return changed
