"""What tests of weights share: a checkpoint, servers that are stopped at the end, a session that may reach them."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ledger.base import Digest
from node.shards.manifest import CHUNK_BYTES, build
from node.shards.patch_finding import Named
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.patchers import Node, Start, started


@pytest.fixture
async def servers() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def http() -> AsyncIterator[Connections]:
    async with Connections(allow_private=True) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Eight chunks."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "weights").write_bytes(random.Random(0).randbytes(6 * CHUNK_BYTES + 1000))
    return folder


@pytest.fixture
def origin(tmp_path: Path, source: Path) -> CheckpointStore:
    store = CheckpointStore(tmp_path / "origin")
    store.add(source)
    return store


@pytest.fixture
def root(source: Path) -> Digest:
    return build(source).root


@pytest.fixture
def start(tmp_path: Path, servers: AsyncExitStack, http: Connections) -> Start:
    """start(name, *sources): a node that serves what it has; `named=` says whom the run names."""

    async def start_in(name: str, *sources: str, named: Named | None = None) -> Node:
        return await started(tmp_path / name, servers, http, *sources, named=named)

    return start_in
