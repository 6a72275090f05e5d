"""A checkpoint's files in one folder, and which of their chunks are known to be right. Reads no disk."""

import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ledger.base import Digest
from node.shards.bitmaps import packed
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest

TICK_NS = 20_000_000  # twice the longest tick of the clock that files' times are of (Linux with CONFIG_HZ=100)
NEVER = float("-inf")

Place = tuple[Path, int, int]  # (file, offset, length), in bytes


class Stamp(NamedTuple):
    """Of a file, at one time; another one once it was written to or replaced."""

    inode: int
    size: int
    changed_ns: int


class Holding:
    """Chunks are numbered through, file after file. Reading it needs no lock.

    What is `found`, as an earlier process left it, counts as verified, and yet nobody gets it before it is hashed.
    That holds as long as its file has the stamp that it had then (`intact`), and to be handed out for an hour: a disk
    that rots leaves the stamp as it is.
    """

    def __init__(
        self,
        root: Digest,
        manifest: Manifest,
        folder: Path,
        whole: bool,
        found: bool = False,
        now: Callable[[], float] = time.monotonic,
        tick_ns: int = TICK_NS,
    ) -> None:
        self.root = root
        self.manifest = manifest
        self.folder = folder
        self.verified = bytearray([whole]) * manifest.chunks
        self.now, self.tick_ns = now, tick_ns
        self.hashed = array("d", [NEVER if found else now()]) * manifest.chunks  # when each was, by `now`
        self.stamps: list[Stamp | None] = [None] * len(manifest.files)
        self.writing = threading.Lock()  # to a file here, or its stamp
        self._starts = list(accumulate((len(file.chunks) for file in manifest.files), initial=0))
        self._numbers: dict[bytes, list[int]] = {}
        for number, digest in enumerate(self.digests()):
            self._numbers.setdefault(digest, []).append(number)

    @property
    def whole(self) -> bool:
        return 0 not in self.verified

    def digests(self) -> Iterator[bytes]:
        """Of all chunks, by number."""
        for file in self.manifest.files:
            yield from file.chunks

    def number(self, file: int, chunk: int) -> int:
        """The number of chunk `chunk` of file `file`. Raises: IndexError."""
        if not 0 <= file < len(self.manifest.files) or not 0 <= chunk < len(self.manifest.files[file].chunks):
            raise IndexError(f"no chunk {chunk} of file {file}")
        return self._starts[file] + chunk

    def file(self, number: int) -> int:
        """Which one chunk `number` is of."""
        return bisect_right(self._starts, number) - 1

    def path(self, file: int) -> Path:
        return self.folder / self.manifest.files[file].name

    def vouch(self, number: int) -> None:
        """Chunk `number` is right: it has just been hashed."""
        self.hashed[number] = self.now()

    def doubt(self, file: int) -> None:
        """None of its chunks counts as hashed any more."""
        start, end = self._starts[file], self._starts[file + 1]
        self.hashed[start:end] = array("d", [NEVER]) * (end - start)

    def entry(self, number: int) -> tuple[FileEntry, int]:
        """The file of chunk `number`, and which of its chunks that is."""
        file = self.file(number)
        return self.manifest.files[file], number - self._starts[file]

    def numbers(self, digest: bytes) -> list[int]:
        """Of all chunks with that digest."""
        return self._numbers.get(digest, [])

    def place(self, number: int) -> Place:
        file, chunk = self.entry(number)
        return self.folder / file.name, chunk * CHUNK_BYTES, file.length(chunk)

    def moved(self, folder: Path) -> "Holding":
        """As it is, where it lies now."""
        moved = Holding(self.root, self.manifest, folder, self.whole, now=self.now, tick_ns=self.tick_ns)
        moved.hashed[:], moved.stamps[:] = self.hashed, self.stamps
        return moved

    def bitmap(self) -> bytes:
        """Of the verified chunks."""
        return packed(self.verified)
