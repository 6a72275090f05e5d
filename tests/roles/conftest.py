"""The `tiny` model, a run small enough for tests, and networks of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.launch import Plan, build_spec
from node.membership import tasks_of
from node.models.resolve import resolve
from node.runspec import AuditSpec, RunSpec, SlotSpec, WindowsSpec
from node.tasks.taskset import Taskset
from tests.roles.network import Build, Network, network_of


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return resolve("tiny", lambda _: None, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def spec(base: Path) -> RunSpec:
    """Two groups of two rollouts, every leaf audited, one submission open at a time."""
    whole = build_spec("tiny", base, Plan("test", max_open=1, max_steps=2))
    windows = WindowsSpec(available=6, audit=6, settle_by=120, confirm=20, contest=8, panel=0, grace=30)
    slot, audit = SlotSpec(groups=2, group_size=2), AuditSpec(leaves=4)
    return whole.model_copy(update={"slot": slot, "audit": audit, "windows": windows})


@pytest.fixture(scope="session")
def tasks(base: Path, spec: RunSpec) -> Taskset:
    return tasks_of(spec, base)


@pytest.fixture
async def build(tmp_path: Path, base: Path, spec: RunSpec, tasks: Taskset) -> AsyncIterator[Build]:
    """build(validators, ...): a network; everything in it is stopped at the end."""
    networks: list[Network] = []

    async def built(validators: int = 2, spec: RunSpec = spec, **options: object) -> Network:
        network = await network_of(tmp_path / f"net{len(networks)}", base, spec, tasks, validators, **options)  # type: ignore[arg-type]
        networks.append(network)
        return network

    yield built
    for network in networks:
        await network.stop()
