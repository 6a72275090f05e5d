"""A whole checkpoint, chunk by chunk, as patches are made from it and applied to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from blake3 import blake3

from node.errors import NotFound
from node.shards.manifest import CHUNK_BYTES, Manifest

Key = tuple[str, int]  # a chunk's place: its file, and which of the file's chunks it is


@dataclass(frozen=True, slots=True)
class Spot:
    """A chunk of one checkpoint: its number there, its digest, its length in bytes."""

    number: int
    digest: bytes
    length: int


def spots(manifest: Manifest) -> dict[Key, Spot]:
    """The chunks by their places, in order."""
    found: dict[Key, Spot] = {}
    for file in manifest.files:
        for chunk, digest in enumerate(file.chunks):
            found[file.name, chunk] = Spot(len(found), digest, file.length(chunk))
    return found


@dataclass(frozen=True)
class Side:
    """The checkpoint in `folder`."""

    folder: Path
    manifest: Manifest

    @cached_property
    def spots(self) -> dict[Key, Spot]:
        return spots(self.manifest)

    def read(self, key: Key) -> bytes:
        """The chunk at `key`, where it has one, hashed.

        Raises: NotFound: it was evicted, or is not what it was. OSError: the disk failed.
        """
        name, chunk = key
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(chunk * CHUNK_BYTES)
                data = file.read(self.spots[key].length)
        except FileNotFoundError as error:
            raise NotFound(f"checkpoint {self.folder.name} was evicted") from error
        if blake3(data).digest() != self.spots[key].digest:
            raise NotFound(f"chunk {chunk} of {self.folder / name} has changed on this disk")
        return data
