"""Which weights a worker's engine holds: changed in place from version to version, loaded where that cannot be."""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ledger.base import Version
from node.engines.base import Policy
from node.engines.changes import Change
from node.engines.scripted import ScriptedEngine
from node.errors import EngineError
from node.membership import policy_of
from node.roles.frauds import Honest
from node.roles.loading import Loading
from tests.roles.network import TRAINER, Build, Network, Part
from tests.roles.stage import until


class Noted(ScriptedEngine):
    """Notes how its weights came to it; `broken` ones cannot be changed in place."""

    def __init__(self, policy: Policy, broken: bool = False) -> None:
        super().__init__(policy)
        self.broken = broken
        self.calls: list[str] = []

    def load(self, folder: Path) -> None:
        self.calls.append("load")
        super().load(folder)

    def patch(self, folder: Path, changes: Sequence[Change]) -> None:
        self.calls.append(f"patch {sum(len(change.indices) for change in changes)}")
        if self.broken:
            raise EngineError("no")
        super().load(folder)


async def publish_next(network: Network, part: Part, folder: Path, changed: int) -> None:
    """Version 1: the base with `changed` weights moved."""
    shutil.copytree(network.base, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"].view(torch.int16).view(-1)[:changed] ^= 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    root = await asyncio.to_thread(part.member.checkpoints.add, folder)
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), root)
    await part.member.sync()


async def loading_of(build: Build, tmp_path: Path, broken: bool = False) -> tuple[Loading, Noted]:
    network = await build(validators=1)
    part = await network.validator()
    await part.member.sync()
    await publish_next(network, part, tmp_path / "next", changed=5)
    engine = Noted(policy_of(network.spec), broken)
    return Loading(part.member, engine, Honest()), engine


async def hold(loading: Loading, version: int) -> None:
    async with loading.holding(Version(version)):
        pass


async def fresh(loading: Loading, version: int) -> str:
    """The digest of the weights of `version`, as an engine that has loaded them has it."""
    engine = Noted(loading.engine._policy)  # type: ignore[attr-defined]
    engine.load(await loading.member.weights.folder(Version(version)))
    return engine.weights_digest()


async def test_the_next_version_is_made_in_place_of_the_one_that_is_loaded(build: Build, tmp_path: Path) -> None:
    loading, engine = await loading_of(build, tmp_path)

    await hold(loading, 0)
    await hold(loading, 1)
    assert engine.weights_digest() == await fresh(loading, 1)
    await hold(loading, 0)  # and back

    assert engine.calls == ["load", "patch 5", "patch 5"]
    assert engine.weights_digest() == await fresh(loading, 0)


async def test_the_weights_are_loaded_when_they_cannot_be_changed_in_place(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loading, engine = await loading_of(build, tmp_path, broken=True)

    await hold(loading, 0)
    with caplog.at_level(logging.WARNING):
        await hold(loading, 1)

    assert engine.calls == ["load", "patch 5", "load"]
    assert engine.weights_digest() == await fresh(loading, 1)
    assert "weights not changed in place, loading them" in caplog.messages


async def test_the_weights_are_loaded_when_it_is_not_known_what_the_engine_holds(build: Build, tmp_path: Path) -> None:
    loading, engine = await loading_of(build, tmp_path)

    await hold(loading, 0)
    loading.version = None  # as after a failure of the engine
    await hold(loading, 1)

    assert engine.calls == ["load", "load"]


async def test_the_weights_are_loaded_when_the_engine_fails_while_the_next_ones_wait(
    build: Build, tmp_path: Path
) -> None:
    loading, engine = await loading_of(build, tmp_path)

    async with loading.holding(Version(0)):
        waiting = asyncio.create_task(hold(loading, 1))
        await until(loading.turn.locked)
        loading.version = None
    await waiting

    assert engine.calls == ["load", "load"]
