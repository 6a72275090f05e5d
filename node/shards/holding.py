"""A checkpoint's files in one folder, and which of their chunks are known to be right. Reads no disk."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from ledger.base import Digest
from node.shards.bitmaps import packed
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest

Place = tuple[Path, int, int]  # (file, offset, length), in bytes


class Holding:
    """Chunks are numbered through, file after file. Reading it needs no lock: chunks only ever become verified.

    What is `found`, as an earlier process left it, counts as verified, and yet nobody gets it before it is `hashed`.
    """

    def __init__(self, root: Digest, manifest: Manifest, folder: Path, whole: bool, found: bool = False) -> None:
        self.root = root
        self.manifest = manifest
        self.folder = folder
        self.verified = bytearray([whole]) * manifest.chunks
        self.hashed = bytearray([not found]) * manifest.chunks
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

    def entry(self, number: int) -> tuple[FileEntry, int]:
        """The file of chunk `number`, and which of its chunks that is."""
        file = bisect_right(self._starts, number) - 1
        return self.manifest.files[file], number - self._starts[file]

    def numbers(self, digest: bytes) -> list[int]:
        """Of all chunks with that digest."""
        return self._numbers.get(digest, [])

    def place(self, number: int) -> Place:
        file, chunk = self.entry(number)
        return self.folder / file.name, chunk * CHUNK_BYTES, file.length(chunk)

    def locate(self, digest: bytes) -> Place | None:
        """Where a verified chunk with that digest lies, which was hashed."""
        return next((self.place(n) for n in self.numbers(digest) if self.verified[n] and self.hashed[n]), None)

    def bitmap(self) -> bytes:
        """Of the verified chunks."""
        return packed(self.verified)
