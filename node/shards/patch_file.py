"""A patch on disk: a head that names two checkpoints, then a record for each chunk of the second that the first lacks.

Nothing of it is believed but by what comes out (`patch_applying`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.manifest import CHUNK_BYTES
from node.shards.patch_words import Packed

TAG = b"in/patch/1\0\0"
HEAD = struct.Struct("<12s32s32s")  # tag, base, target
RECORD = struct.Struct("<IIBIII")  # chunk of the target, changed words or 0, top, lengths of the frames
MAX_CHANGED = CHUNK_BYTES // 4  # half the words of a chunk: of more, the whole chunk is shorter
MAX_FRAME_BYTES = CHUNK_BYTES + (1 << 16)  # no content needs more, however little it can be compressed


def write_head(file: BinaryIO, base: Digest, target: Digest) -> None:
    file.write(HEAD.pack(TAG, base, target))


def write_record(file: BinaryIO, chunk: int, packed: Packed) -> None:
    """Records ascend by `chunk`, its number in the target."""
    file.write(RECORD.pack(chunk, packed.count, packed.top, *map(len, packed.frames)))
    file.writelines(packed.frames)


def record_bytes(packed: Packed) -> int:
    """What `write_record` writes."""
    return RECORD.size + sum(map(len, packed.frames))


@dataclass(frozen=True, slots=True)
class _Place:
    offset: int
    count: int
    top: int
    lengths: tuple[int, int, int]

    @property
    def end(self) -> int:
        return self.offset + sum(self.lengths)


@dataclass(frozen=True, slots=True)
class Patch:
    """The patch in file `path`; of each chunk that it has a record of, where that lies."""

    path: Path
    base: Digest
    target: Digest
    places: Mapping[int, _Place]

    @classmethod
    def read(cls, path: Path, chunks: int) -> Patch:
        """Reads the heads of all records, none of their frames.

        `chunks`: of the target, and the most records that are kept in memory. Raises: Malformed. OSError.
        """
        with path.open("rb") as file:
            head = file.read(HEAD.size)
            if len(head) != HEAD.size or not head.startswith(TAG):
                raise Malformed("not a patch, or one of another format")
            _, base, target = HEAD.unpack(head)
            return cls(path, Digest(base), Digest(target), _places(file, path.stat().st_size, chunks))

    def record(self, chunk: int) -> Packed | None:
        """Of a chunk of the target, if it is not the base's. Raises: NotFound: the patch was evicted. OSError."""
        place = self.places.get(chunk)
        if place is None:
            return None
        try:
            with self.path.open("rb") as file:
                file.seek(place.offset)
                gaps, low, high = (file.read(length) for length in place.lengths)
        except FileNotFoundError as error:
            raise NotFound(f"patch {self.path.parent.name} was evicted") from error
        return Packed(place.count, place.top, (gaps, low, high))


def _places(file: BinaryIO, size: int, chunks: int) -> dict[int, _Place]:
    places: dict[int, _Place] = {}
    last = -1
    while head := file.read(RECORD.size):
        if len(head) != RECORD.size:
            raise Malformed("breaks off in the head of a record")
        chunk, count, top, *lengths = RECORD.unpack(head)
        if chunk <= last:
            raise Malformed(f"has chunk {chunk} after chunk {last}")
        if chunk >= chunks:
            raise Malformed(f"has chunk {chunk} of {chunks}")
        _require_frames(count, top, lengths)
        places[chunk] = place = _Place(file.tell(), count, top, (lengths[0], lengths[1], lengths[2]))
        if place.end > size:
            raise Malformed("breaks off in a frame")
        file.seek(place.end)
        last = chunk
    return places


def _require_frames(count: int, top: int, lengths: list[int]) -> None:
    frames = 3 if count else 1
    if count > MAX_CHANGED:
        raise Malformed(f"changes {count} words of a chunk, at most {MAX_CHANGED} can be")
    if max(lengths) > MAX_FRAME_BYTES or not all(lengths[:frames]) or any(lengths[frames:]) or (top and not count):
        raise Malformed(f"has frames of {lengths} bytes for {count} changes")
