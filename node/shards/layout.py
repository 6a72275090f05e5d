"""Where things lie in a store's folder. Everything appears, and goes, by a rename.

checkpoints/ROOT/     whole; read-only, what a model loader gets
partial/ROOT/         being received, ROOT.marks beside it (`partial`); without it, the marks go at the next start
manifests/ROOT        the manifest's bytes
staging/              copies not yet published, and what is being deleted
lock                  held shared by every open store
banned                who served wrong bytes (`bans`)
"""

import fcntl
import logging
import os
import re
import shutil
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed
from node.files import OddFile, disk_refused, is_damage, open_regular, read_regular, sync, write_atomically
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest

log = logging.getLogger(__name__)

CHECKPOINTS, PARTIAL, MANIFESTS, STAGING = KINDS = ("checkpoints", "partial", "manifests", "staging")
KEPT = (CHECKPOINTS, PARTIAL, MANIFESTS)  # by root
MARKS = ".marks"


@contextmanager
def disk(what: str) -> Iterator[None]:
    """Translates what the operating system says. Raises: StoreError."""
    try:
        yield
    except OSError as error:
        raise disk_refused(what, error) from error


class Layout:
    """Paths by root, and the moves between them. Raises OSError where nothing else is said."""

    def __init__(self, folder: Path) -> None:
        """Creates what is missing, and clears what killed processes left in staging, and of marks."""
        self.folder = folder
        for kind in KINDS:
            (folder / kind).mkdir(parents=True, exist_ok=True)
        self._clear()

    def whole(self, root: Digest) -> Path:
        return self.folder / CHECKPOINTS / root.hex()

    def partial(self, root: Digest) -> Path:
        return self.folder / PARTIAL / root.hex()

    def marks(self, root: Digest) -> Path:
        return self.folder / PARTIAL / (root.hex() + MARKS)

    def manifest(self, root: Digest) -> Path:
        return self.folder / MANIFESTS / root.hex()

    def roots(self, *kinds: str) -> set[Digest]:
        """Of what lies here, of all kinds unless some are named."""
        names = {path.name.removesuffix(MARKS) for kind in kinds or KEPT for path in (self.folder / kind).iterdir()}
        return {Digest(bytes.fromhex(name)) for name in names if re.fullmatch("[0-9a-f]{64}", name)}

    def staged(self) -> Path:
        """A path that nobody else uses, on the same file system."""
        (self.folder / STAGING).mkdir(exist_ok=True)  # else whatever is removed would seem to be gone already
        return self.folder / STAGING / uuid.uuid4().hex

    def make_lasting(self, manifest: Manifest, folder: Path) -> bool:
        """Has the files of `manifest` in `folder` survive a power cut, before they are published: at 60 GB that takes a
        while. Whether the folder is still there: others may have published or evicted it meanwhile."""
        try:
            for file in manifest.files:
                sync(folder / file.name)
            sync(folder)
        except FileNotFoundError:
            if folder.is_dir():  # a file of it has gone, and that nobody does
                raise
            return False
        return True

    def publish(self, manifest: Manifest, root: Digest, folder: Path) -> Path:
        """Moves `folder`, whose files were made lasting, to its place among the whole checkpoints; `settle` is next."""
        target = self.whole(root)
        try:
            for file in manifest.files:
                (folder / file.name).chmod(0o444)  # against slips: these very bytes are served to others
            folder.rename(target)
        except OSError:  # another store was first, with the same bytes
            if not target.is_dir():
                raise
        for path in (folder, self.partial(root), self.marks(root)):
            self.remove(path)
        return target

    def settle(self) -> None:
        """Has what was published survive a power cut."""
        sync(self.folder / CHECKPOINTS)

    def remove(self, path: Path) -> None:
        """Deletes file or folder `path`, if it is there: out of sight by a rename, so that a kill leaves no half."""
        away = self.staged()
        with suppress(FileNotFoundError):
            path.rename(away)
            _delete(away)

    def evict(self, root: Digest) -> bool:
        """Deletes all of a checkpoint; whether there was anything of it, but for its manifest."""
        paths = (self.whole(root), self.partial(root), self.marks(root))
        was_there = any(path.exists() for path in paths)
        for path in (*paths, self.manifest(root)):
            self.remove(path)
        return was_there

    def make_way(self, folder: Path) -> None:
        """Removes what stands in a folder's place and is none."""
        if os.path.lexists(folder) and not folder.is_dir():
            log.warning("%s is no folder and is removed", folder)
            self.remove(folder)

    def opened(self, path: Path, flags: int) -> int:
        """A descriptor of a file here. What else stands in its place is removed; `flags` are to create it, then."""
        try:
            return open_regular(path, flags)
        except OddFile as error:
            log.warning("%s is removed: %s", path, error.strerror)
            self.remove(path)
            return open_regular(path, flags)

    def save_manifest(self, manifest: Manifest) -> Digest:
        """Returns its root."""
        data = manifest.encode()
        root = Digest(blake3(data).digest())
        write_atomically(self.manifest(root), data, self.staged())
        return root

    def load_manifest(self, root: Digest) -> Manifest | None:
        """None where there is none that can be had, or that is within limits."""
        try:
            data = self.read_manifest(root)
            return None if data is None else Manifest.parse(data)
        except Malformed:
            return None

    def read_manifest(self, root: Digest) -> bytes | None:
        """What is in its file, hashed now; None where there is none. Another one than `root` names is removed."""
        path = self.manifest(root)
        try:
            data = read_regular(path, MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            if not is_damage(error):
                raise
            data, why = b"", error.strerror
        else:
            why = "its bytes have changed"
        if blake3(data).digest() == root:
            return data
        log.warning("manifest %s is damaged and removed, to be had again: %s", path, why)
        self.remove(path)
        return None

    def _clear(self) -> None:
        descriptor = self.opened(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another store is open, and may be using what is in staging
            pass
        else:
            for path in (*(self.folder / STAGING).iterdir(), *self._unmarking()):
                _delete(path)
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def _unmarking(self) -> list[Path]:
        """Marks of chunks that are not here: of a checkpoint that was being published, or evicted."""
        marks = (self.folder / PARTIAL).glob("*" + MARKS)
        return [path for path in marks if not os.path.lexists(path.with_suffix(""))]


def _delete(path: Path) -> None:
    """A file, a link without what it leads to, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
