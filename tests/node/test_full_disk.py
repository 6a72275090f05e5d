"""A disk that is really full: what cannot be written is said, nothing is lost, and all goes on once there is room."""

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.base import Address, Digest, Version
from ledger.journal import Attempt, Journal, JournalError, SlotClaim, Stage
from node.errors import ConfigError, StoreError
from node.files import require_writable, write_atomically
from node.models.resolve import resolve
from node.rollouts.store import RolloutStore
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest
from node.shards.store import CheckpointStore
from tests.node.small_disk import PAGE, Disk

FULL = "the disk is full. Make room"
SENDER = Address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")  # EIP-55's first example


def test_rollouts_are_kept_or_refused_whole(disk: Disk) -> None:
    store, first, second = RolloutStore(disk.folder / "rollouts"), Digest(b"\1" * 32), Digest(b"\2" * 32)
    store.put(first, b"one" * 1000)
    disk.fill(leave=PAGE)

    with pytest.raises(StoreError, match=FULL) as refused:
        store.put(second, b"two" * 10_000)

    assert str(store.path(second)) in str(refused.value)
    assert store.list() == (first,)
    assert [path.name for path in (disk.folder / "rollouts").iterdir()] == [store.path(first).name]
    disk.make_room()
    store.put(second, b"two" * 10_000)
    assert store.list() == (first, second)
    assert store.get(second) == b"two" * 10_000


def test_weights_are_published_whole_or_not_at_all(disk: Disk) -> None:
    base = resolve("tiny", lambda _: None)
    store = CheckpointStore(disk.folder / "checkpoints")
    disk.fill(leave=1_000_000)

    with pytest.raises(
        StoreError, match=r"has .* MB, of which .* have to come, and .* free, of which .* stay so: make room"
    ):
        store.add(base)

    assert not list((disk.folder / "checkpoints" / "staging").iterdir())
    disk.make_room()
    root = store.add(base)
    folder = store.complete(root)
    assert folder is not None
    assert (folder / "model.safetensors").read_bytes() == (base / "model.safetensors").read_bytes()


def test_a_download_is_not_begun_into_the_last_of_a_disk(disk: Disk) -> None:
    store = CheckpointStore(disk.folder / "weights")
    size = shutil.disk_usage(disk.folder).free // CHUNK_BYTES * CHUNK_BYTES  # all of it

    with pytest.raises(
        StoreError, match=r"has .* MB, of which .* have to come, and .* free, of which .* stay so: make room"
    ):
        store.begin(Manifest((FileEntry("a", size, (bytes(32),) * (size // CHUNK_BYTES)),), ()))


def test_a_model_is_built_into_the_cache_once_there_is_room(disk: Disk) -> None:
    disk.fill(leave=1_000_000)
    with pytest.raises(StoreError, match=FULL):
        resolve("tiny", lambda _: None, disk.folder / "models")

    disk.make_room()
    assert (resolve("tiny", lambda _: None, disk.folder / "models") / "config.json").is_file()


def test_nothing_is_signed_that_cannot_be_written_down_and_the_journal_goes_on(disk: Disk) -> None:
    journal = Journal(disk.folder / "journal.sqlite")

    def sign(number: int) -> None:
        entry = journal.intend(
            "31337", SENDER, "submit", SENDER, bytes(3 * PAGE), 0, SlotClaim(f"{number}", Digest(bytes(32)))
        )
        journal.sign(entry, number, 21_000, Attempt(Digest(bytes([number]) * 32), bytes(3 * PAGE), 1, 1))

    sign(1)
    disk.fill()
    for _ in range(2):  # a second time: the first must not leave a transaction of the database open
        with pytest.raises(
            JournalError, match=r"disk is full or failing, and nothing is signed that .* Make room"
        ) as refused:
            sign(2)
        assert str(disk.folder / "journal.sqlite") in str(refused.value)
    assert [entry.nonce for entry in journal.signed()] == [1]

    disk.make_room()
    sign(2)
    journal.finish(1, Stage.MINED)
    journal.close()
    again = Journal(disk.folder / "journal.sqlite")
    assert [entry.nonce for entry in again.signed()] == [1, 2]
    again.close()


def test_a_journal_that_cannot_be_made_is_said(disk: Disk) -> None:
    disk.fill()
    with pytest.raises(JournalError, match="disk is full or failing"):
        Journal(disk.folder / "journals" / "new.sqlite")

    disk.make_room()
    Journal(disk.folder / "journals" / "new.sqlite").close()


def test_the_last_training_state_stays_whole(disk: Disk) -> None:
    import torch

    from node.training.checkpoint import State, latest_state, save_state

    def save(version: int, size: int) -> None:
        save_state(
            disk.folder / "states", State(Version(version), {}, {"weights": torch.full((size,), float(version))})
        )

    save(1, 100)
    disk.fill(leave=1_000_000)
    with pytest.raises(StoreError, match=FULL):
        save(2, 500_000)
    kept = latest_state(disk.folder / "states")
    assert kept is not None and kept.version == 1

    disk.make_room()
    save(2, 500_000)
    found = latest_state(disk.folder / "states")
    assert found is not None and found.version == 2
    assert torch.equal(found.tensors["weights"], torch.full((500_000,), 2.0))
    assert sorted(path.name for path in (disk.folder / "states").iterdir()) == ["state-00000001", "state-00000002"]


def test_a_folder_on_a_full_disk_is_found_before_anything_depends_on_it(disk: Disk) -> None:
    require_writable(disk.folder / "home")
    disk.fill()

    for refuse in (
        lambda: require_writable(disk.folder / "home"),
        lambda: require_writable(disk.folder / "another" / "x"),
    ):
        with pytest.raises(StoreError, match=FULL):
            refuse()
    disk.make_room()
    require_writable(disk.folder / "home")
    assert not list((disk.folder / "home").iterdir())


def test_a_place_where_nobody_may_write_is_the_users_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "home", Path("/proc/self/home")):
        with pytest.raises(ConfigError, match="cannot be written to"):
            require_writable(folder)


LIMITED = """
import sys
from pathlib import Path
from node.errors import StoreError
from node.files import write_atomically
try:
    write_atomically(Path(sys.argv[1]), bytes(100_000))
except StoreError as error:
    print(error)
"""


def test_a_limit_on_the_size_of_files_is_said_as_one(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    said = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True, preexec_fn=limit
    ).stdout

    assert said.startswith(f"{path}: File too large: this process may not write a file so large. Make room")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"]
