"""What a disk, or somebody beside this program, has damaged: it is not handed out, and not what ends a role.

What shows no trace of it is in `test_rot`.
"""

import errno
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from blake3 import blake3

from ledger.base import Digest
from node.errors import NotFound
from node.files import is_damage
from node.shards.intact import read_place
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.checkpoints import chunks_of, contents, flip, four_chunks, left_long_ago
from tests.shards.sources import BRIEF, downloader, fetched, serving


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return four_chunks(tmp_path / "source")


@pytest.fixture
def root(tmp_path: Path, source: Path) -> Digest:
    return left_long_ago(tmp_path / "store", source)


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


# --- Chunks


@pytest.mark.parametrize("harm", HARM)
async def test_what_changed_after_it_was_hashed_is_neither_whole_nor_served_and_nobody_banned(
    tmp_path: Path, source: Path, servers: AsyncExitStack, http: Connections, harm: Harm
) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.add(source)
    assert store.complete(root) is not None
    harm(tmp_path / "store" / "checkpoints" / root.hex() / "weights")
    node = downloader(tmp_path / "node", http, [await serving(servers, store)], BRIEF)

    assert await fetched(node, root) is None
    assert store.complete(root) is None
    assert not node.selection.banned


async def test_a_flip_between_two_chunks_that_come_is_noticed_and_the_chunk_had_again(
    tmp_path: Path, source: Path
) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))
    pieces = chunks_of(source)
    for piece in pieces[:2]:
        store.write_chunk(root, *piece)
    flip(tmp_path / "store" / "partial" / root.hex() / "weights")
    for piece in pieces[2:]:
        store.write_chunk(root, *piece)

    assert store.complete(root) is None
    store.begin(build(source))
    assert store.have(root) == bytes([0b1101])
    store.write_chunk(root, *pieces[1])
    folder = store.complete(root)
    assert folder is not None and contents(folder) == contents(source)


@pytest.mark.parametrize("harm", HARM)
def test_what_was_damaged_between_two_processes_is_not_handed_out_and_can_be_had_again(
    tmp_path: Path, source: Path, root: Digest, harm: Harm
) -> None:
    folder = tmp_path / "store" / "checkpoints" / root.hex()
    harm(folder / "weights")
    store = CheckpointStore(tmp_path / "store")

    assert store.complete(root) is None and not folder.exists()
    with pytest.raises(NotFound):
        store.have(root)
    assert store.add(source) == root and store.complete(root) == folder
    assert contents(folder) == contents(source)


@pytest.mark.parametrize("harm", [a_folder, a_pipe, an_endless_link, a_link_to_itself])
def test_a_checkpoint_that_cannot_be_read_is_given_up_with_what_to_do(
    tmp_path: Path, root: Digest, caplog: pytest.LogCaptureFixture, harm: Harm
) -> None:
    store = CheckpointStore(tmp_path / "store")
    harm(tmp_path / "store" / "checkpoints" / root.hex() / "config")

    assert store.vouch(blake3(b"{}").digest()) is None
    assert store.complete(root) is None
    assert "check the disk" in caplog.text


def test_a_sector_that_cannot_be_read_is_damage() -> None:
    """A process's memory at 0 is a regular file that says EIO."""
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as refused:
        read_place((Path("/proc/self/mem"), 0, 1))
    assert is_damage(refused.value)
    assert not is_damage(OSError(errno.EMFILE, "too many open files"))


# --- What else may stand in a store's folder


def in_place_of(path: Path, harm: Harm) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(b"")
    harm(path)


@pytest.mark.parametrize("harm", [a_folder, a_pipe, an_endless_link, a_link_to_itself])
@pytest.mark.parametrize("place", ["lock", "staging/odd", "partial/ROOT", "partial/ROOT.marks", "partial/ROOT/weights"])
def test_a_store_opens_and_receives_whatever_stands_in_the_place_of_its_files(
    tmp_path: Path, source: Path, place: str, harm: Harm
) -> None:
    manifest = build(source)
    CheckpointStore(tmp_path / "store")
    in_place_of(tmp_path / "store" / place.replace("ROOT", manifest.root.hex()), harm)

    store = CheckpointStore(tmp_path / "store")
    root = store.begin(manifest)
    for piece in chunks_of(source):
        store.write_chunk(root, *piece)

    folder = store.complete(root)
    assert folder is not None and contents(folder) == contents(source)
    assert list((tmp_path / "store" / "staging").iterdir()) == []


def test_what_a_link_in_staging_leads_to_is_left_alone(tmp_path: Path) -> None:
    CheckpointStore(tmp_path / "store")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_bytes(b"")
    (tmp_path / "store" / "staging" / "link").symlink_to(tmp_path / "mine")

    CheckpointStore(tmp_path / "store")

    assert (tmp_path / "mine" / "file").exists()


def test_a_file_in_the_place_of_a_whole_checkpoint_makes_way(tmp_path: Path, source: Path) -> None:
    root = build(source).root
    CheckpointStore(tmp_path / "store")
    (tmp_path / "store" / "checkpoints" / root.hex()).write_bytes(b"")

    store = CheckpointStore(tmp_path / "store")

    assert store.add(source) == root and store.complete(root) is not None
