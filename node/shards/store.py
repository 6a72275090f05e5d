"""Checkpoints on disk, by manifest root: whole ones ready to load, others while they are received (`layout`).

Several stores, also of several processes, may share a folder: everything is named by its content and moved by rename.
Methods block on the disk, except `have` and `manifest`; call them in a thread. They are safe from any thread.
"""

import shutil
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ledger.base import Digest
from ledger.disk import DISK_FULL
from node.errors import NotFound, StoreError
from node.progress import OnProgress
from node.shards.held import Held
from node.shards.holding import Holding, Place
from node.shards.intact import stamps
from node.shards.layout import Layout, disk
from node.shards.manifest import Manifest, build, checkpoint_files
from node.shards.partial import copy_known, prepare, write
from node.shards.room import Room

Listener = Callable[[Sequence[bytes]], None]  # digests of what has become available; from any thread


class CheckpointStore:
    """Every chunk in it was hashed before it was written, and again where an earlier process left it: of what is being
    received when it is begun, of what is whole when it is first handed out; and of what is handed out, each hour."""

    def __init__(self, folder: Path, quota_bytes: int | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """Opens or creates the store; its checkpoints take `quota_bytes` of the disk at most. Raises: StoreError."""
        self._room = Room(folder, quota_bytes)
        self._listeners: tuple[Listener, ...] = ()
        with disk(f"cannot open the checkpoint store {folder}"):
            self._layout = Layout(folder)
            self._held, self._now = Held(self._layout, now), now

    @property
    def folder(self) -> Path:
        """What lies in it says `layout`; files of other names are left alone."""
        return self._layout.folder

    # --- Whole checkpoints

    def add(self, source: Path, progress: OnProgress | None = None) -> Digest:
        """Copies the files of `source` and publishes them; returns the manifest root.

        Copied, not linked: whoever saves over `source` later must not change what is published.

        Raises:
            StoreError: `source` has no files, there is no room, or the disk failed.
            Malformed: a safetensors header of `source`.
        """
        staged = self._layout.staged()
        with disk(f"cannot copy {source} into the checkpoint store"):
            self._make_room(str(source), sum(path.stat().st_size for path in checkpoint_files(source)))
            try:
                staged.mkdir()
                manifest = build(source, progress, staged)
                holding = Holding(manifest.root, manifest, staged, whole=True, now=self._now)
                holding.stamps = stamps(holding)
                self._layout.make_lasting(manifest, staged)
                with self._held.changing:
                    self._save_manifest(manifest)
                    self._publish(holding)
                self._layout.settle()
                return manifest.root
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def complete(self, root: Digest) -> Path | None:
        """The folder of the whole checkpoint, or None while chunks are missing. Publishes it when the last has come.

        What an earlier process or another store published is hashed the first time, and a file that has changed since
        then again; it is removed if a byte is not right. Others use the store meanwhile.

        Raises: StoreError.
        """
        with disk(f"cannot publish checkpoint {root.hex()}"):
            while (holding := self._held.whole(root)) is not None:
                if not self._held.hashed(holding):
                    continue
                if holding.folder == self._layout.whole(root):
                    return holding.folder
                self._publish_received(holding)
            return None

    def recheck(self, root: Digest) -> bool:
        """Whether the checkpoint is whole here and every byte, hashed now, is what it was; it is removed if not.

        Raises: StoreError.
        """
        self._held.doubt(root)
        return self.complete(root) is not None

    def keep(self, roots: Collection[Digest], spare: Sequence[Digest] = ()) -> None:
        """Deletes every checkpoint, whole or not, that is not among `roots`.

        Those in `spare` go too as soon as another one needs the room, the first one first. Raises: StoreError.
        """
        with self._held.changing, disk(f"cannot evict from {self._layout.folder}"):
            self._room.spare = tuple(spare)
            for root in self._layout.roots() - set(roots):
                self._evict(root)

    # --- Receiving

    def begin(self, manifest: Manifest) -> Digest:
        """Makes room for a checkpoint; what an earlier process left of it is hashed again and kept.

        Chunks that other checkpoints here have already are copied from them.

        Raises: StoreError, also where there is no room.
        """
        root = manifest.root
        with self._held.changing, disk(f"cannot begin checkpoint {root.hex()}"):
            if self._layout.whole(root).is_dir():
                self._save_manifest(manifest)  # which may be all that was missing
            if self._held.present(root) is not None:
                return root
            partial = self._layout.partial(root)
            holding = Holding(root, manifest, partial, whole=False, found=True, now=self._now)
            self._make_room(f"checkpoint {root.hex()[:16]}", manifest.size, root)
            self._save_manifest(manifest)
            prepare(holding, self._layout)
            copy_known(holding, self._layout, self._held.vouch)
            self._held.put(holding)
        self._announce(
            [digest for verified, digest in zip(holding.verified, holding.digests(), strict=True) if verified]
        )
        return root

    def known(self, root: Digest) -> Manifest | None:
        """The manifest, if it is here, be anything else of the checkpoint here or not. Raises: StoreError."""
        with disk(f"cannot read the manifest of {root.hex()}"):
            return self._layout.load_manifest(root)

    def remember(self, manifest: Manifest) -> None:
        """Keeps the manifest alone. Raises: StoreError."""
        with self._held.changing, disk("cannot write a manifest"):
            self._save_manifest(manifest)

    def write_chunk(self, root: Digest, file: int, chunk: int, data: bytes | memoryview) -> None:
        """Stores chunk `chunk` of file `file` (both from 0), wherever the checkpoint has those bytes.

        Raises:
            Malformed: `data` is not that chunk; nothing was written.
            NotFound: the checkpoint was not begun, or was evicted.
            StoreError: the disk is full or failed.
        """
        holding = self._held.get(root)
        if holding.whole:
            return
        try:
            self._write(holding, file, chunk, data)
        except FileNotFoundError as error:
            if self.complete(root) is None:
                raise NotFound(f"checkpoint {root.hex()} was evicted while it was received") from error
        self._announce([holding.manifest.files[file].chunks[chunk]])

    # --- What is there

    def manifest(self, root: Digest) -> Manifest:
        """Of a checkpoint that is whole or begun. Raises: NotFound."""
        return self._held.get(root).manifest

    def manifest_path(self, root: Digest) -> Path:
        """The file that hashes to `root`, as it did just now; it may be evicted a moment later.

        Raises: NotFound, StoreError.
        """
        with disk(f"cannot read the manifest of {root.hex()}"):
            if self._layout.read_manifest(root) is None:
                with self._held.changing:
                    self._held.present(root)
                    self._save_manifest(self.manifest(root))  # of what is here without it
            return self._layout.manifest(root)

    def have(self, root: Digest) -> bytes:
        """Bitmap of verified chunks. Raises: NotFound."""
        return self._held.get(root).bitmap()

    def vouch(self, digest: bytes) -> Place | None:
        """(file, offset, length) of a chunk of any checkpoint; it may be renamed a moment later. It is hashed, unless
        it was within the hour and its file is the same since. Raises: StoreError."""
        with disk("cannot read the checkpoint store"):
            return self._held.vouch(digest)

    def relocate(self, digest: bytes) -> Place | None:
        """`vouch`, when a place was found gone: after a look at what other stores have done to the folder."""
        with self._held.changing, disk("cannot look at the checkpoint store"):
            self._held.look_again()
        return self.vouch(digest)

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with the digests of what becomes available, from the thread that wrote it: chunks, and
        manifests by their root."""
        self._listeners = (*self._listeners, listener)

    def unsubscribe(self, listener: Listener) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    # --- Inside

    def _write(self, holding: Holding, file: int, chunk: int, data: bytes | memoryview) -> None:
        """Where the disk has become full, what can be spared goes."""
        while True:
            try:
                return write(holding, self._layout, file, chunk, data)
            except StoreError as error:
                full = getattr(error.__cause__, "errno", None) in DISK_FULL
                with self._held.changing:
                    if not (full and self._room.spare_one(self._evict, holding.root)):
                        raise

    def _make_room(self, what: str, size: int, root: Digest | None = None) -> None:
        with self._held.changing:
            self._room.make(what, size, self._evict, root)

    def _evict(self, root: Digest) -> bool:
        """Whether there was anything of it, but for its manifest."""
        self._held.forget(root)
        return self._layout.evict(root)

    def _publish_received(self, holding: Holding) -> None:
        """Moves it among the whole ones, unless that is done, or it was evicted, while the disk took its time."""
        if not self._layout.make_lasting(holding.manifest, holding.folder):
            return
        with self._held.changing:
            if self._held.present(holding.root) is holding:
                self._publish(holding)
        self._layout.settle()

    def _publish(self, holding: Holding) -> None:
        """Of a folder that was made lasting; what is not as it was hashed there is hashed again."""
        folder = self._layout.publish(holding.manifest, holding.root, holding.folder)
        self._held.put(holding.moved(folder))
        self._announce(list(holding.digests()))

    def _save_manifest(self, manifest: Manifest) -> None:
        self._announce([self._layout.save_manifest(manifest)])

    def _announce(self, digests: Sequence[bytes]) -> None:
        for listener in self._listeners:
            listener(digests)
