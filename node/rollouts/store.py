"""Rollout files on this node's disk, by commitment.

A worker puts its file before it sends the commitment: the name binds version, slot, beacon and root, so after a crash a
file belongs to an assignment exactly if the commitment recomputed from both is the file's name. Nothing else is kept.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from threading import Lock

from ledger.base import Digest
from node.errors import StoreError
from node.files import OddFile, disk_refused, read_regular, write_atomically
from node.log import warn

MAX_FILE_BYTES = 2**30  # no run's file is near it; what is larger was not written by this store
_SUFFIX = ".rollouts"
_NAME = re.compile(r"[0-9a-f]{64}\.rollouts")


class RolloutStore:
    """Files of one folder. Any process may read; only one at a time writes, from any of its threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writing = Lock()
        self._prepared = False

    def path(self, commitment: Digest) -> Path:
        """Where the file of `commitment` lies, or would."""
        if len(commitment) != 32:
            raise ValueError(f"a commitment has 32 bytes, not {len(commitment)}")
        return self._folder / (commitment.hex() + _SUFFIX)

    def put(self, commitment: Digest, data: bytes) -> None:
        """Writes the file. When it returns, the file survives a power cut; until then there is the old one or none.

        Raises:
            StoreError: over `MAX_FILE_BYTES`, or the disk refused.
        """
        path = self.path(commitment)
        if len(data) > MAX_FILE_BYTES:
            raise StoreError(f"{path}: {len(data)} bytes, at most {MAX_FILE_BYTES} are kept")
        with self._writing, _translated(path):
            self._prepare()
            self._make_room(path)
            write_atomically(path, data)

    def holds(self, commitment: Digest) -> bool:
        """Whether its file is here: nothing that this store cannot have written. Raises: StoreError."""
        path = self.path(commitment)
        with _translated(path):
            return _is_stored(path)

    def get(self, commitment: Digest) -> bytes | None:
        """The file, or None where `holds` says that there is none. Raises: StoreError: it cannot be read."""
        path = self.path(commitment)
        with _translated(path):
            try:
                return read_regular(path, MAX_FILE_BYTES)
            except (FileNotFoundError, OddFile):
                return None

    def list(self) -> tuple[Digest, ...]:
        """Commitments of all whole files, ascending. Raises: StoreError."""
        with _translated(self._folder):
            try:
                paths = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and _is_stored(path)]
            except FileNotFoundError:
                return ()
        return tuple(Digest(bytes.fromhex(path.stem)) for path in sorted(paths))

    def delete(self, commitment: Digest) -> None:
        """Removes the file; that there is none is no error. Raises: StoreError."""
        path = self.path(commitment)
        with self._writing, _translated(path):
            path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        """Once, before the first write: the folder, without what a killed writer left unfinished."""
        if self._prepared:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
        self._prepared = True

    def _make_room(self, path: Path) -> None:
        """Where what is at `path` was not put here: writing replaces it, but for a folder, which is moved aside."""
        if _is_stored(path) or not os.path.lexists(path):
            return
        is_folder = path.is_dir() and not path.is_symlink()
        aside = Path(tempfile.mkdtemp(prefix=path.name + ".", dir=self._folder)) if is_folder else None
        if aside is not None:
            path.replace(aside)  # which is empty
        warn("what is no rollout file stood in a file's place: it is replaced", path=path, kept_as=aside)


def _is_stored(path: Path) -> bool:
    """Whether this store can have written what is at `path`: no folder, pipe or link, and not too large."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_refused(path, error) from error
