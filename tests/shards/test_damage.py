"""What a disk, or somebody beside this program, has damaged: it is not handed out, and not what ends a role."""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ledger.base import Digest
from node.errors import NotFound
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.checkpoints import contents, four_chunks
from tests.shards.sources import downloader, serving


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return four_chunks(tmp_path / "source")


@pytest.fixture
def root(tmp_path: Path, source: Path) -> Digest:
    """Of a checkpoint that an earlier process left in the store."""
    return CheckpointStore(tmp_path / "store").add(source)


def flip(path: Path, place: int = 5) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def an_endless_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def cut(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size - 1)


def huge(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, 1 << 36)


Harm = Callable[[Path], None]
HARM: list[Harm] = [flip, cut, huge, a_folder, a_pipe, an_endless_link, a_link_to_itself]


# --- Manifests


@pytest.mark.parametrize("harm", HARM)
async def test_a_damaged_manifest_is_written_anew_where_it_is_asked_for_and_nobody_banned(
    tmp_path: Path, root: Digest, source: Path, servers: AsyncExitStack, http: Connections, harm: Harm
) -> None:
    store = CheckpointStore(tmp_path / "store")
    harm(tmp_path / "store" / "manifests" / root.hex())
    node = downloader(tmp_path / "node", http, [await serving(servers, store)])

    assert contents(await node.fetch(root)) == contents(source)
    assert not node.selection.banned


@pytest.mark.parametrize("harm", HARM)
def test_a_checkpoint_is_there_again_once_the_manifest_that_was_damaged_has_come(
    tmp_path: Path, root: Digest, source: Path, harm: Harm
) -> None:
    harm(tmp_path / "store" / "manifests" / root.hex())
    store = CheckpointStore(tmp_path / "store")

    assert store.known(root) is None and store.complete(root) is None
    with pytest.raises(NotFound):
        store.manifest_path(root)
    assert store.begin(build(source)) == root
    assert store.have(root) == b"\x0f"  # the chunks were not to blame
    folder = store.complete(root)
    assert folder is not None and contents(folder) == contents(source)
