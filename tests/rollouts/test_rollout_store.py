"""Rollout files on disk: whole or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.base import Digest
from node.errors import StoreError
from node.rollouts.store import MAX_FILE_BYTES, RolloutStore

ONE, TWO = Digest(b"\x01" * 32), Digest(b"\x02" * 32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "node" / "rollouts"


def test_a_file_is_there_for_the_next_process_when_it_was_put(folder: Path) -> None:
    RolloutStore(folder).put(ONE, b"rows")

    assert RolloutStore(folder).get(ONE) == b"rows"
    assert (folder / ("01" * 32 + ".rollouts")).read_bytes() == b"rows"


def test_nothing_is_there_when_nothing_was_put(folder: Path) -> None:
    store = RolloutStore(folder)

    assert (store.get(ONE), store.list()) == (None, ())
    assert not folder.exists()


def test_the_list_ascends_and_skips_what_is_no_rollout_file(folder: Path) -> None:
    store = RolloutStore(folder)
    store.put(TWO, b"b")
    store.put(ONE, b"a")
    (folder / "notes.rollouts").write_bytes(b"")
    (folder / ("03" * 32 + ".tmp")).write_bytes(b"half")

    assert store.list() == (ONE, TWO)


def test_deleting_removes_the_file_and_is_repeatable(folder: Path) -> None:
    store = RolloutStore(folder)
    store.put(ONE, b"a")

    store.delete(ONE)
    store.delete(ONE)

    assert (store.get(ONE), store.list()) == (None, ())


def test_leftovers_of_a_killed_writer_are_removed_when_the_next_one_writes(folder: Path) -> None:
    RolloutStore(folder).put(ONE, b"a")
    leftover = folder / ("02" * 32 + ".tmp")
    leftover.write_bytes(b"half")
    store = RolloutStore(folder)

    assert store.get(TWO) is None
    store.put(ONE, b"a")

    assert not leftover.exists()


def test_threads_that_put_one_file_leave_a_whole_one(folder: Path) -> None:
    store = RolloutStore(folder)
    contents = [bytes([k]) * 100_000 for k in range(8)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda data: store.put(ONE, data), contents))

    assert store.get(ONE) in contents
    assert [path.name for path in folder.iterdir()] == ["01" * 32 + ".rollouts"]


def stand_in(kind: str, path: Path) -> None:
    """Puts something that is no regular file at `path`."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
            (path / "kept").write_bytes(b"somebody's")
        case "large":
            path.write_bytes(b"")
            os.truncate(path, MAX_FILE_BYTES + 1)  # sparse: takes no room
        case link:
            path.symlink_to(link)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "/dev/zero", "/etc/hosts"])
def test_what_this_store_did_not_write_is_not_read_and_counts_as_not_here(folder: Path, kind: str) -> None:
    store = RolloutStore(folder)
    folder.mkdir(parents=True)
    stand_in(kind, store.path(ONE))

    assert (store.get(ONE), store.holds(ONE), store.list()) == (None, False, ())


@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "/dev/zero", "/etc/hosts"])
def test_a_file_takes_the_place_of_what_this_store_did_not_write_and_that_is_said_once(
    folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RolloutStore(folder)
    folder.mkdir(parents=True)
    stand_in(kind, store.path(ONE))

    for content in (b"rows", b"rows again"):
        store.put(ONE, content)
        assert (store.get(ONE), store.holds(ONE), store.list()) == (content, True, (ONE,))

    assert [line.getMessage() for line in caplog.records] == [
        "what is no rollout file stood in a file's place: it is replaced"
    ]
    kept = [path.read_bytes() for path in folder.rglob("kept")]
    assert kept == ([b"somebody's"] if kind == "folder" else [])


def test_errors_of_the_disk_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"a file, not a folder")
    store = RolloutStore(tmp_path / "taken")

    with pytest.raises(StoreError, match="taken"):
        store.put(ONE, b"a")
    with pytest.raises(StoreError, match="taken"):
        store.get(ONE)
    with pytest.raises(StoreError, match="taken"):
        store.list()
    with pytest.raises(StoreError, match="taken"):
        store.delete(ONE)


def test_a_commitment_of_the_wrong_length_has_no_path(folder: Path) -> None:
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        RolloutStore(folder).path(Digest(b"abc"))
