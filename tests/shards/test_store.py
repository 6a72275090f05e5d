"""The store of checkpoints: what is in it is right, whoever was killed when."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed, NotFound, StoreError
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest, build
from node.shards.store import CheckpointStore
from tests.shards.checkpoints import checkpoint, chunks_of, contents, four_chunks

SOME = Digest(bytes(32))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return four_chunks(tmp_path / "source")


def test_a_checkpoint_is_whole_when_it_was_added(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")

    root = store.add(source)

    folder = store.complete(root)
    assert folder is not None
    assert contents(folder) == contents(source)
    assert root == build(source).root == blake3(store.manifest_path(root).read_bytes()).digest()
    assert store.have(root) == b"\x0f"
    assert store.add(source) == root
    assert list((tmp_path / "store" / "staging").iterdir()) == []


def test_a_published_checkpoint_does_not_change_when_its_source_is_saved_over(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    folder = store.complete(store.add(source))
    assert folder is not None

    with (source / "config").open("r+b") as file:
        file.write(b"[]")

    assert (folder / "config").read_bytes() == b"{}"


def test_a_checkpoint_is_published_when_its_last_chunk_is_written(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    manifest = build(source)
    root = store.begin(manifest)
    bitmaps = []

    for file, chunk, data in chunks_of(source):
        assert store.complete(root) is None
        store.write_chunk(root, file, chunk, data)
        bitmaps.append(store.have(root))

    folder = store.complete(root)
    assert folder is not None
    assert contents(folder) == contents(source)
    assert bitmaps == [b"\x01", b"\x03", b"\x07", b"\x0f"]
    assert list((tmp_path / "store" / "partial").iterdir()) == []
    assert store.manifest(root) == manifest


def test_a_chunk_is_located_when_it_was_verified_and_not_before(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))
    digest = blake3(b"b" * CHUNK_BYTES).digest()
    assert store.vouch(digest) is None

    store.write_chunk(root, 1, 1, b"b" * CHUNK_BYTES)

    place = store.vouch(digest)
    assert place is not None
    path, offset, length = place
    assert (offset, length) == (CHUNK_BYTES, CHUNK_BYTES)
    assert path.read_bytes()[offset : offset + length] == b"b" * CHUNK_BYTES


@pytest.mark.parametrize(
    ("file", "chunk", "data"),
    [(1, 0, b"x" * CHUNK_BYTES), (1, 2, b"tai"), (1, 2, b"tail!"), (1, 2, b""), (1, 3, b"tail"), (2, 0, b"{}"),
     (-1, 0, b"{}"), (0, -1, b"{}"), (0, 10**9, b"{}")],
)  # fmt: skip
def test_nothing_is_written_when_a_chunk_is_wrong(
    file: int, chunk: int, data: bytes, source: Path, tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))

    with pytest.raises(Malformed):
        store.write_chunk(root, file, chunk, data)

    assert store.have(root) == b"\x00"
    assert not any(any(data) for data in contents(tmp_path / "store" / "partial" / root.hex()).values())


def test_equal_chunks_are_written_everywhere_when_one_comes(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", a=b"z" * (2 * CHUNK_BYTES), b=b"z" * CHUNK_BYTES)
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))

    store.write_chunk(root, 0, 1, b"z" * CHUNK_BYTES)

    folder = store.complete(root)
    assert folder is not None
    assert contents(folder) == contents(source)


def test_chunks_are_not_needed_again_when_another_version_has_them(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    store.add(source)
    following = checkpoint(tmp_path / "next", config=b"{}", weights=b"a" * CHUNK_BYTES + b"c" * CHUNK_BYTES + b"tail")

    root = store.begin(build(following))

    assert store.have(root) == bytes([0b1011])
    store.write_chunk(root, 1, 1, b"c" * CHUNK_BYTES)
    folder = store.complete(root)
    assert folder is not None
    assert contents(folder) == contents(following)


def test_what_is_not_there_is_not_found_when_asked_for(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    for ask in (store.manifest, store.manifest_path, store.have):
        with pytest.raises(NotFound):
            ask(SOME)
    with pytest.raises(NotFound):
        store.write_chunk(SOME, 0, 0, b"")
    assert store.complete(SOME) is None
    assert store.known(SOME) is None
    assert store.vouch(SOME) is None


def test_whole_checkpoints_are_there_when_the_store_is_opened_again(source: Path, tmp_path: Path) -> None:
    root = CheckpointStore(tmp_path / "store").add(source)

    again = CheckpointStore(tmp_path / "store")

    folder = again.complete(root)
    assert folder is not None
    assert contents(folder) == contents(source)


def test_marks_are_not_believed_when_the_bytes_are_wrong(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))
    for file, chunk, data in chunks_of(source)[:3]:
        store.write_chunk(root, file, chunk, data)
    with (tmp_path / "store" / "partial" / root.hex() / "weights").open("r+b") as file_of_weights:
        file_of_weights.write(b"x")

    again = CheckpointStore(tmp_path / "store")

    manifest = again.known(root)
    assert manifest == build(source)
    again.begin(manifest)
    assert again.have(root) == bytes([0b0101])


def test_marks_without_their_checkpoint_are_gone_when_a_store_opens_that_nobody_else_uses(
    source: Path, tmp_path: Path
) -> None:
    """Of one that was published, and of one whose process was killed while it was published, or evicted."""
    folder = tmp_path / "store" / "partial"
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))
    begun, left = folder / f"{root.hex()}.marks", folder / f"{'7' * 64}.marks"
    left.write_bytes(b"\1\1")

    CheckpointStore(tmp_path / "store")
    assert left.exists()
    del store
    CheckpointStore(tmp_path / "store")

    assert begun.exists() and not left.exists()


def test_others_are_gone_when_some_are_kept(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    kept = store.add(source)
    whole = store.add(checkpoint(tmp_path / "whole", config=b"1"))
    begun = store.begin(build(checkpoint(tmp_path / "begun", config=b"2")))

    store.keep([kept])

    assert store.complete(kept) is not None
    for gone in (whole, begun):
        assert store.complete(gone) is None
        with pytest.raises(NotFound):
            store.have(gone)
    with pytest.raises(NotFound):
        store.write_chunk(begun, 0, 0, b"2")
    left = {str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").glob("*/*")}
    assert left == {f"checkpoints/{kept.hex()}", f"manifests/{kept.hex()}"}


@dataclass
class SlowDisk:
    """Whose first sync of a file `weights` lasts until it is told to `go` on."""

    asked: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def sync(self, descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "weights":
            self.asked.set()
            assert self.go.wait(20)
        FSYNC(descriptor)


FSYNC = os.fsync


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("nothing here says which file a descriptor is of")
    slow = SlowDisk()
    monkeypatch.setattr(os, "fsync", slow.sync)
    yield slow
    slow.go.set()


@pytest.mark.parametrize("received", [False, True])
def test_others_use_the_store_while_the_disk_takes_its_time_over_what_is_published(
    source: Path, tmp_path: Path, slow_disk: SlowDisk, received: bool
) -> None:
    store = CheckpointStore(tmp_path / "store")
    manifest, other = build(source), build(checkpoint(tmp_path / "other", config=b"other"))

    def publish() -> Path | None:
        if not received:
            return store.complete(store.add(source))
        root = store.begin(manifest)
        for file, chunk, data in chunks_of(source):
            store.write_chunk(root, file, chunk, data)
        return store.complete(root)

    with ThreadPoolExecutor(2) as threads:
        publishing = threads.submit(publish)
        try:
            assert slow_disk.asked.wait(10)
            threads.submit(store.begin, other).result(5)
            threads.submit(store.keep, {manifest.root, other.root}).result(5)
            assert not publishing.done()
            assert not (tmp_path / "store" / "checkpoints" / manifest.root.hex()).exists()
        finally:
            slow_disk.go.set()
        folder = publishing.result(10)

    assert folder is not None and contents(folder) == contents(source)
    assert {path.name[:64] for path in (tmp_path / "store" / "partial").iterdir()} == {other.root.hex()}


@pytest.mark.parametrize("again", [False, True])
def test_what_was_evicted_while_the_disk_took_its_time_is_not_published(
    source: Path, tmp_path: Path, slow_disk: SlowDisk, again: bool
) -> None:
    store = CheckpointStore(tmp_path / "store")
    manifest = build(source)
    root = store.begin(manifest)
    for file, chunk, data in chunks_of(source):
        store.write_chunk(root, file, chunk, data)

    with ThreadPoolExecutor(1) as threads:
        publishing = threads.submit(store.complete, root)
        try:
            assert slow_disk.asked.wait(10)
            store.keep([])
            if again:
                store.begin(manifest)
        finally:
            slow_disk.go.set()
        assert publishing.result(10) is None

    assert list((tmp_path / "store" / "checkpoints").iterdir()) == []
    assert CheckpointStore(tmp_path / "store").complete(root) is None


def test_a_listener_hears_of_manifest_and_chunks_when_they_become_available(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    heard: list[bytes] = []
    store.subscribe(heard.extend)
    root = store.begin(build(source))
    file, chunk, data = chunks_of(source)[3]

    store.write_chunk(root, file, chunk, data)
    assert heard == [root, blake3(b"tail").digest()]

    store.unsubscribe(heard.extend)
    store.write_chunk(root, 0, 0, b"{}")
    assert len(heard) == 2


# --- Two stores on one folder


def test_a_checkpoint_is_refused_with_figures_when_there_is_no_room(tmp_path: Path) -> None:
    chunks = 2**16
    if shutil.disk_usage(tmp_path).free > chunks * CHUNK_BYTES:
        pytest.skip("this disk has room for 275 GB")
    store = CheckpointStore(tmp_path / "store")
    manifest = Manifest((FileEntry("a", chunks * CHUNK_BYTES, (bytes(32),) * chunks),), ())

    with pytest.raises(StoreError, match=r"has 274\.9 GB, of which"):
        store.begin(manifest)


def test_what_a_manifest_claims_takes_no_room_while_no_chunk_has_come(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(Manifest((FileEntry("a", 16 * CHUNK_BYTES, (bytes(32),) * 16),), ()))

    claimed = (tmp_path / "store" / "partial" / root.hex() / "a").stat()

    assert claimed.st_size == 16 * CHUNK_BYTES
    assert claimed.st_blocks * 512 < 100_000


def test_a_full_disk_is_a_store_error_when_a_chunk_is_written(source: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    root = store.begin(build(source))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK_BYTES, before[1]))  # which counts as full
    try:
        with pytest.raises(StoreError, match=os.strerror(errno.EFBIG)):
            store.write_chunk(root, 1, 1, b"b" * CHUNK_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.have(root) == b"\x00"


def test_a_store_that_cannot_be_made_is_a_store_error_when_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot open"):
        CheckpointStore(tmp_path / "file" / "store")


# --- Kills


WRITER = """
    import sys
    from pathlib import Path
    from node.shards.manifest import CHUNK_BYTES, build
    from node.shards.store import CheckpointStore

    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    store = CheckpointStore(folder)
    manifest = build(source)
    root = store.begin(manifest)
    print("begun", flush=True)
    for index, file in enumerate(manifest.files):
        data = (source / file.name).read_bytes()
        for chunk in range(len(file.chunks)):
            store.write_chunk(root, index, chunk, data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES])
            print(chunk, flush=True)
    store.complete(root)
    store.add(source)
"""


@pytest.mark.parametrize("delay_seconds", [0.0, 0.01, 0.03, 0.1])
def test_a_download_goes_on_with_what_is_right_when_its_process_was_killed(
    delay_seconds: float, tmp_path: Path
) -> None:
    source = checkpoint(tmp_path / "source", config=b"{}", weights=os.urandom(12 * CHUNK_BYTES + 5))
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(source), str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay_seconds)  # the moment of the kill is what is tested
        writer.kill()
        reported = len(writer.stdout.readlines())

    store = CheckpointStore(tmp_path / "store")
    manifest = build(source)
    root = store.begin(manifest)
    kept = sum(bits.bit_count() for bits in store.have(root))
    assert kept >= reported
    for file, chunk, data in chunks_of(source):
        store.write_chunk(root, file, chunk, data)
    folder = store.complete(root)
    assert folder is not None
    assert contents(folder) == contents(source)
