"""Two stores on one folder: neither undoes what the other has done."""

from pathlib import Path

import pytest

from node.shards.manifest import build
from node.shards.store import CheckpointStore
from tests.shards.checkpoints import chunks_of, contents, four_chunks


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return four_chunks(tmp_path / "source")


def test_two_stores_finish_one_checkpoint_when_they_share_a_folder(source: Path, tmp_path: Path) -> None:
    first, second = CheckpointStore(tmp_path / "store"), CheckpointStore(tmp_path / "store")
    root = first.begin(build(source))
    assert second.begin(build(source)) == root
    pieces = chunks_of(source)
    for file, chunk, data in pieces:
        first.write_chunk(root, file, chunk, data)
    second.write_chunk(root, *pieces[0])
    folder = first.complete(root)

    second.write_chunk(root, *pieces[1])  # into a folder that has been published meanwhile

    assert folder is not None
    assert second.complete(root) == folder
    assert contents(folder) == contents(source)


def test_progress_of_both_survives_when_two_stores_share_a_folder(source: Path, tmp_path: Path) -> None:
    first, second = CheckpointStore(tmp_path / "store"), CheckpointStore(tmp_path / "store")
    root = first.begin(build(source))
    second.begin(build(source))
    pieces = chunks_of(source)
    first.write_chunk(root, *pieces[0])
    second.write_chunk(root, *pieces[3])

    third = CheckpointStore(tmp_path / "store")
    third.begin(build(source))

    assert third.have(root) == bytes([0b1001])


def test_a_store_begins_anew_when_another_evicted_the_checkpoint(source: Path, tmp_path: Path) -> None:
    first, second = CheckpointStore(tmp_path / "store"), CheckpointStore(tmp_path / "store")
    root = first.add(source)
    assert second.complete(root) is not None

    first.keep([])

    assert second.complete(root) is None
    second.begin(build(source))
    assert second.have(root) == b"\x00"


def test_staging_of_an_open_store_is_left_alone_when_another_opens(tmp_path: Path) -> None:
    first = CheckpointStore(tmp_path / "store")
    (tmp_path / "store" / "staging" / "busy").mkdir()

    second = CheckpointStore(tmp_path / "store")
    assert (tmp_path / "store" / "staging" / "busy").exists()

    del first, second
    CheckpointStore(tmp_path / "store")
    assert not (tmp_path / "store" / "staging" / "busy").exists()


# --- Disks
