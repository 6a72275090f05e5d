"""Rot changes no stamp of a file, a write does: what is handed out was hashed within the hour, and is the same."""

import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from blake3 import blake3

from ledger.base import Digest
from node.shards.held import Held
from node.shards.intact import HASH_AGAIN_SECONDS
from node.shards.layout import Layout
from node.shards.manifest import CHUNK_BYTES, build
from node.shards.shelves import Singles
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.clocks import HandClock
from tests.shards.checkpoints import chunks_of, contents, flip_unnoticed, four_chunks, left_long_ago
from tests.shards.sources import BRIEF, downloader, fetched, serving


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return four_chunks(tmp_path / "source")


@pytest.fixture
def root(tmp_path: Path, source: Path) -> Digest:
    return left_long_ago(tmp_path / "store", source)


def written(path: Path, data: bytes, at: int) -> None:
    """At `at`, in nanoseconds since 1970."""
    path.write_bytes(data)
    os.utime(path, ns=(at, at))


async def test_what_rots_is_served_no_more_once_it_was_hashed_an_hour_ago_and_nobody_banned(
    tmp_path: Path, source: Path, servers: AsyncExitStack, http: Connections
) -> None:
    clock = HandClock()
    store = CheckpointStore(tmp_path / "store", now=clock.monotonic)
    root = store.add(source)
    assert store.complete(root) is not None
    digest = blake3(b"a" * CHUNK_BYTES).digest()
    flip_unnoticed(tmp_path / "store" / "checkpoints" / root.hex() / "weights")
    clock.now += HASH_AGAIN_SECONDS - 1
    assert store.vouch(digest) is not None
    clock.now += 1
    node = downloader(tmp_path / "node", http, [await serving(servers, store)], BRIEF)

    assert await fetched(node, root) is None
    assert not node.selection.banned
    assert store.complete(root) is None and store.begin(build(source)) == root  # it is had anew


def test_a_chunk_that_rots_while_others_are_received_is_had_again(tmp_path: Path, source: Path) -> None:
    clock = HandClock()
    store = CheckpointStore(tmp_path / "store", now=clock.monotonic)
    root = store.begin(build(source))
    pieces = chunks_of(source)
    for piece in pieces[:2]:
        store.write_chunk(root, *piece)
    flip_unnoticed(tmp_path / "store" / "partial" / root.hex() / "weights")
    clock.now += HASH_AGAIN_SECONDS

    assert store.vouch(blake3(pieces[1][2]).digest()) is None
    store.begin(build(source))
    assert store.have(root) == bytes([0b0001])
    for piece in pieces[1:]:
        store.write_chunk(root, *piece)
    folder = store.complete(root)
    assert folder is not None and contents(folder) == contents(source)


def test_what_was_hashed_again_counts_for_another_hour(tmp_path: Path, root: Digest) -> None:
    clock = HandClock()
    store = CheckpointStore(tmp_path / "store", now=clock.monotonic)
    digest = blake3(b"{}").digest()
    for _ in range(3):
        assert store.vouch(digest) is not None
        clock.now += HASH_AGAIN_SECONDS
    assert store.vouch(digest) is not None
    flip_unnoticed(tmp_path / "store" / "checkpoints" / root.hex() / "config", 1)
    clock.now += HASH_AGAIN_SECONDS - 1
    assert store.vouch(digest) is not None
    clock.now += 1
    assert store.vouch(digest) is None


def test_what_was_hashed_within_a_tick_of_being_written_is_hashed_again(tmp_path: Path, root: Digest) -> None:
    """A second write within the tick leaves the file's time as it is."""
    os.utime(tmp_path / "store" / "checkpoints" / root.hex() / "weights")
    held = Held(Layout(tmp_path / "store"), tick_ns=3600 * 10**9)
    digest = blake3(b"a" * CHUNK_BYTES).digest()
    assert held.vouch(digest) is not None and held.hashed(held.get(root))
    flip_unnoticed(tmp_path / "store" / "checkpoints" / root.hex() / "weights")

    assert held.vouch(digest) is None and held.whole(root) is None


def test_a_rollout_file_that_rots_is_forgotten_once_its_chunk_was_hashed_an_hour_ago(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "file"
    written(path, b"rollouts", at=1)
    singles = Singles(clock.monotonic)
    (digest,) = singles.add(path, b"rollouts").files[0].chunks
    assert singles.vouch(digest) is not None
    flip_unnoticed(path)
    clock.now += HASH_AGAIN_SECONDS - 1
    assert singles.vouch(digest) is not None
    clock.now += 1

    assert singles.vouch(digest) is None and singles.known(path) is None


def test_a_rollout_file_that_rotted_before_it_was_first_handed_out_is_not(tmp_path: Path) -> None:
    path, singles = tmp_path / "file", Singles()
    written(path, b"rollouts", at=1)
    (digest,) = singles.add(path, b"rollouts").files[0].chunks
    flip_unnoticed(path)

    assert singles.vouch(digest) is None


def test_nothing_is_hashed_again_as_long_as_no_file_changes(tmp_path: Path, root: Digest) -> None:
    store = CheckpointStore(tmp_path / "store")
    assert store.complete(root) is not None
    weights = tmp_path / "store" / "checkpoints" / root.hex() / "weights"
    flip_unnoticed(weights)

    assert store.complete(root) is not None
    assert store.vouch(blake3(b"a" * CHUNK_BYTES).digest()) is not None


def test_only_the_file_that_changed_is_hashed_again(tmp_path: Path, root: Digest) -> None:
    store = CheckpointStore(tmp_path / "store")
    folder = store.complete(root)
    assert folder is not None
    flip_unnoticed(folder / "weights")
    (folder / "config").touch()

    assert store.complete(root) == folder


def test_a_rollout_file_that_changed_after_it_was_hashed_is_handed_out_no_more(tmp_path: Path) -> None:
    path = tmp_path / "file"
    written(path, b"rollouts", at=1)
    singles = Singles()
    (digest,) = singles.add(path, b"rollouts").files[0].chunks
    assert singles.vouch(digest) == (path, 0, 8)
    written(path, b"rollout!", at=2)

    assert singles.vouch(digest) is None and singles.known(path) is None
    assert singles.add(path, b"rollout!").files[0].chunks == (blake3(b"rollout!").digest(),)
    assert singles.known(path) is not None


def test_a_checkpoint_that_rots_is_removed_once_all_of_it_is_to_be_hashed_again(
    tmp_path: Path, source: Path, root: Digest
) -> None:
    store = CheckpointStore(tmp_path / "store")
    folder = store.complete(root)
    assert folder is not None and store.recheck(root)
    flip_unnoticed(folder / "weights")
    assert store.complete(root) == folder  # hashed once, and trusted since

    assert not store.recheck(root)

    assert store.complete(root) is None and not folder.exists()
    assert not store.recheck(root)  # nor what is not here
    assert store.add(source) == root and store.recheck(root)
