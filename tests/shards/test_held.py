"""Hashing a whole checkpoint while others use the store, and while what is hashed changes."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.base import Digest
from node.shards.held import Held
from node.shards.holding import NEVER, Holding, Place
from node.shards.intact import is_intact
from node.shards.layout import Layout
from node.shards.manifest import build
from node.shards.store import CheckpointStore
from tests.shards.checkpoints import aged, checkpoint, flip, four_chunks


class Watched(Holding):
    """Calls `meanwhile` when its last chunk is about to be hashed."""

    def __init__(self, holding: Holding, meanwhile: Callable[[Path], object]) -> None:
        super().__init__(holding.root, holding.manifest, holding.folder, whole=True, found=True)
        self._meanwhile = meanwhile

    def place(self, number: int) -> Place:
        if number == len(self.verified) - 1:
            self._meanwhile(self.folder)
        return super().place(number)


@pytest.fixture
def root(tmp_path: Path) -> Digest:
    """Of a checkpoint that an earlier process left in the store, long ago."""
    root = CheckpointStore(tmp_path / "store").add(four_chunks(tmp_path / "source"))
    aged(tmp_path / "store" / "checkpoints")
    return root


def hashed(tmp_path: Path, root: Digest, meanwhile: Callable[[Path], object]) -> tuple[bool, Held]:
    held = Held(Layout(tmp_path / "store"))
    return held.hashed(held.put(Watched(held.get(root), meanwhile))), held


def test_others_use_the_store_while_a_whole_checkpoint_is_hashed(tmp_path: Path, root: Digest) -> None:
    held, hashed, going_on = Held(Layout(tmp_path / "store")), list[bool](), threading.Event()
    watched = held.put(Watched(held.get(root), lambda _: going_on.wait(5)))
    hashing = threading.Thread(target=lambda: hashed.append(held.hashed(watched)))

    def use() -> None:
        with held.changing:
            held.look_again()
        held.vouch(bytes(32))

    using = threading.Thread(target=use)
    hashing.start()
    time.sleep(0.1)
    using.start()
    using.join(5)
    assert hashing.is_alive() and not using.is_alive()
    going_on.set()
    hashing.join(5)
    assert hashed == [True]


def test_what_was_hashed_counts_as_intact_when_nothing_changed(tmp_path: Path, root: Digest) -> None:
    agree, held = hashed(tmp_path, root, lambda _: None)
    assert agree and is_intact(held.get(root))
    held.doubt(root)
    assert not is_intact(held.get(root))


def test_what_was_hashed_does_not_count_when_a_file_was_replaced_meanwhile(tmp_path: Path, root: Digest) -> None:
    def replaced(folder: Path) -> None:
        (tmp_path / "new").write_bytes(b"[]")
        (tmp_path / "new").replace(folder / "config")

    agree, held = hashed(tmp_path, root, replaced)
    assert not agree and not is_intact(held.get(root))
    assert held.present(root) is not None  # hashed again by whoever asks
    assert CheckpointStore(tmp_path / "store").complete(root) is None


def test_nothing_is_removed_when_what_was_hashed_was_still_being_written(tmp_path: Path, root: Digest) -> None:
    def shortened(folder: Path) -> None:
        (folder / "weights").chmod(0o644)
        os.truncate(folder / "weights", 1)

    agree, held = hashed(tmp_path, root, shortened)
    assert not agree
    assert held.present(root) is not None
    assert not held.hashed(held.get(root)) and held.present(root) is None  # it has settled, and is wrong


def test_a_checkpoint_is_not_there_when_it_was_evicted_while_it_was_hashed(tmp_path: Path, root: Digest) -> None:
    other = CheckpointStore(tmp_path / "store")
    agree, held = hashed(tmp_path, root, lambda _: other.keep([]))
    assert not agree and not is_intact(held.get(root))
    assert held.present(root) is None


def test_a_checkpoint_that_went_after_it_was_hashed_counts_as_intact_no_more(tmp_path: Path, root: Digest) -> None:
    agree, held = hashed(tmp_path, root, lambda _: None)
    CheckpointStore(tmp_path / "store").keep([])
    assert agree and held.present(root) is None


def test_a_chunk_is_hashed_once_however_often_an_earlier_process_left_it(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "source", a=b"same", b=b"same", c=b"same")
    root = CheckpointStore(tmp_path / "store").add(folder)
    aged(tmp_path / "store" / "checkpoints")
    held = Held(Layout(tmp_path / "store"))
    (digest,) = set(held.get(root).digests())

    assert held.locate(digest) is None
    assert held.vouch(digest) == (tmp_path / "store" / "checkpoints" / root.hex() / "a", 0, 4)
    assert held.vouch(digest) == held.locate(digest)
    assert [at > NEVER for at in held.get(root).hashed] == [True, False, False]


def test_what_changed_is_not_located_while_another_thread_looks_at_it(tmp_path: Path, root: Digest) -> None:
    held = Held(Layout(tmp_path / "store"))
    config, located = next(held.get(root).digests()), list[Place | None]()

    class LookedAt(Holding):
        def doubt(self, file: int) -> None:
            located.append(held.locate(config))
            super().doubt(file)
            located.append(held.locate(config))

    found = held.get(root)
    held.put(LookedAt(root, found.manifest, found.folder, whole=True, found=True))
    assert held.vouch(config) == held.locate(config) is not None
    located.clear()
    flip(tmp_path / "store" / "checkpoints" / root.hex() / "config", 1)

    assert held.vouch(config) is None
    assert located == [None, None]


def test_a_damaged_checkpoint_is_removed_and_not_copied_from_when_another_is_begun(
    tmp_path: Path, root: Digest
) -> None:
    config = tmp_path / "store" / "checkpoints" / root.hex() / "config"
    config.chmod(0o644)
    config.write_bytes(b"[]")
    store = CheckpointStore(tmp_path / "store")
    other = store.begin(build(checkpoint(tmp_path / "other", config=b"{}", more=b"new")))
    assert store.have(other) == b"\x00"
    assert not config.exists()
