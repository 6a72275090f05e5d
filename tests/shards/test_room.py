"""Room for the next checkpoint: what is spared goes, the least needed first, and nothing else."""

import random
from pathlib import Path

import pytest

from ledger.base import Digest
from node.errors import ConfigError, StoreError
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest, build
from node.shards.room import OverQuota, is_news, taken_bytes
from node.shards.store import CheckpointStore
from tests.node.small_disk import Disk
from tests.node.small_disk import disk as disk
from tests.shards.checkpoints import checkpoint, chunks_of

MB = 1_000_000


def megabyte(folder: Path, seed: int) -> Path:
    return checkpoint(folder, weights=random.Random(seed).randbytes(MB))


def filled(store: CheckpointStore, folder: Path, count: int) -> list[Digest]:
    return [store.add(megabyte(folder / f"source-{number}", number)) for number in range(count)]


def test_the_least_needed_goes_when_another_is_begun_over_the_quota(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(3.5 * MB))
    first, second, third = filled(store, tmp_path, 3)
    store.keep([first, second, third], spare=[second, first])
    source = megabyte(tmp_path / "next", 9)

    root = store.begin(build(source))
    for file, chunk, data in chunks_of(source):
        store.write_chunk(root, file, chunk, data)

    assert store.complete(root) is not None
    assert store.complete(second) is None
    assert store.complete(first) is not None
    assert store.complete(third) is not None
    assert 3 * MB <= taken_bytes(tmp_path / "store") <= 3.5 * MB


def test_what_the_quota_has_go_is_said_once_and_what_a_full_disk_has_go_each_time(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(disk.folder / "store", quota_bytes=int(1.5 * MB))
    for number in range(4):
        root = store.add(megabyte(tmp_path / f"source-{number}", number))
        store.keep([root], spare=[root])
    assert len([each for each in caplog.records if "needs the room" in each.getMessage()]) == 1

    store = CheckpointStore(disk.folder / "store")
    store.keep([root], spare=[root])
    for number in range(4, 6):
        disk.fill(leave=MB * 6 // 10)
        root = store.add(megabyte(tmp_path / f"source-{number}", number))
        store.keep([root], spare=[root])
    assert len([each for each in caplog.records if "needs the room" in each.getMessage()]) == 3


def test_that_the_quota_has_no_room_is_news_once(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(1.5 * MB))
    filled(store, tmp_path, 1)

    refusals = list[StoreError]()
    for number in (7, 8, 8):
        with pytest.raises(OverQuota) as refused:
            store.begin(build(megabyte(tmp_path / f"next-{len(refusals)}", number)))
        refusals.append(refused.value)

    assert [is_news(each) for each in refusals] == [True, False, False]
    assert is_news(StoreError("the disk is full"))


def test_room_is_made_when_the_trainer_publishes_over_the_quota(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(2.5 * MB))
    first, second = filled(store, tmp_path, 2)
    store.keep([first, second], spare=[first])

    root = store.add(megabyte(tmp_path / "next", 9))

    assert [store.complete(each) is not None for each in (first, second, root)] == [False, True, True]


def test_nothing_goes_that_is_not_to_spare_when_the_quota_is_full(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(2.5 * MB))
    first, second = filled(store, tmp_path, 2)
    store.keep([first, second])

    with pytest.raises(
        StoreError,
        match=r"has 1\.0 MB, and of the quota of 2\.5 MB, 2\.0 MB are taken .* a --quota of 3\.\d MB or more",
    ):
        store.begin(build(megabyte(tmp_path / "next", 9)))

    assert store.complete(first) is not None
    assert store.complete(second) is not None


def test_what_was_received_of_a_checkpoint_counts_for_it_when_it_is_begun_again(tmp_path: Path) -> None:
    source = megabyte(tmp_path / "next", 9)
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(1.1 * MB))
    root = store.begin(build(source))
    for file, chunk, data in chunks_of(source):
        store.write_chunk(root, file, chunk, data)

    again = CheckpointStore(tmp_path / "store", quota_bytes=int(1.1 * MB))
    assert again.begin(build(source)) == root
    assert again.complete(root) is not None


def test_a_begun_checkpoint_counts_in_full_when_another_is_begun_and_once_when_it_is_begun_again(
    tmp_path: Path,
) -> None:
    source = checkpoint(tmp_path / "next", weights=random.Random(9).randbytes(CHUNK_BYTES + MB))
    quota = CHUNK_BYTES + int(1.5 * MB)
    store = CheckpointStore(tmp_path / "store", quota_bytes=quota)
    root = store.begin(build(source))

    with pytest.raises(StoreError, match="give a --quota of"):
        store.begin(build(megabyte(tmp_path / "other", 8)))

    store.write_chunk(root, *chunks_of(source)[1])
    again = CheckpointStore(tmp_path / "store", quota_bytes=quota)
    assert again.begin(build(source)) == root
    assert again.have(root) == b"\x02"


def test_what_is_being_received_is_not_deleted_for_itself(tmp_path: Path) -> None:
    source = megabyte(tmp_path / "next", 9)
    store = CheckpointStore(tmp_path / "store", quota_bytes=int(1.5 * MB))
    (kept,) = filled(store, tmp_path, 1)
    store.keep([kept, build(source).root], spare=[build(source).root])

    with pytest.raises(StoreError, match="quota"):
        store.begin(build(source))


def test_a_quota_that_no_checkpoint_fits_in_is_the_users_to_change(tmp_path: Path) -> None:
    source = megabyte(tmp_path / "next", 9)
    store = CheckpointStore(tmp_path / "store", quota_bytes=MB // 2)
    store.keep([build(source).root], spare=[build(source).root])

    with pytest.raises(ConfigError, match=r"has 1\.0 MB, and --quota is 500\.0 kB: give two or three times that size"):
        store.begin(build(source))


def test_the_least_needed_goes_when_the_disk_becomes_full_while_one_is_received(disk: Disk, tmp_path: Path) -> None:
    store = CheckpointStore(disk.folder / "store")
    old = store.add(megabyte(tmp_path / "old", 1))
    store.keep([old], spare=[old])
    source = megabyte(tmp_path / "next", 9)
    root = store.begin(build(source))
    disk.fill(leave=100_000)

    for file, chunk, data in chunks_of(source):
        store.write_chunk(root, file, chunk, data)

    assert store.complete(root) is not None
    assert store.complete(old) is None


def test_a_full_disk_is_said_when_nothing_is_to_spare(disk: Disk, tmp_path: Path) -> None:
    store = CheckpointStore(disk.folder / "store")
    old = store.add(megabyte(tmp_path / "old", 1))
    store.keep([old])
    source = megabyte(tmp_path / "next", 9)
    root = store.begin(build(source))
    disk.fill(leave=100_000)

    with pytest.raises(StoreError, match="the disk is full"):
        store.write_chunk(root, *chunks_of(source)[0])

    assert store.complete(old) is not None
    disk.make_room()
    store.write_chunk(root, *chunks_of(source)[0])
    assert store.complete(root) is not None


def test_a_store_that_is_over_its_quota_opens_and_keeps_what_it_has(tmp_path: Path) -> None:
    (root,) = filled(CheckpointStore(tmp_path / "store"), tmp_path, 1)
    assert CheckpointStore(tmp_path / "store", quota_bytes=1).complete(root) is not None


def test_no_half_of_a_manifest_is_left_when_the_disk_is_full(disk: Disk) -> None:
    store = CheckpointStore(disk.folder / "store")
    digests = tuple(number.to_bytes(32) for number in range(20_000))  # 1.3 MB of manifest
    manifest = Manifest((FileEntry("a", len(digests) * CHUNK_BYTES, digests),), ())
    disk.fill(leave=300_000)

    for _ in range(2):
        with pytest.raises(StoreError, match="the disk is full"):
            store.remember(manifest)

    assert not list((store.folder / "staging").iterdir())
    disk.make_room()
    store.remember(manifest)
    assert store.known(manifest.root) == manifest
