"""Applying patches: the chunks of a checkpoint, from an earlier one and the patches that lead from it.

Chunk by chunk through all of them: memory holds one chunk whatever the model's size, and no version in between is
written anywhere. What each patch makes of a chunk is hashed against the manifest of the version that it claims to make,
so that a wrong one is told from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from blake3 import blake3

from node.errors import Malformed
from node.shards.manifest import Manifest
from node.shards.patch_file import Patch
from node.shards.patch_sides import Key, Side, Spot, spots
from node.shards.patch_words import unpack


class WrongPatch(Malformed):
    """A patch does not make its target; `place` says which of the chain it is, from 0."""

    def __init__(self, place: int, why: object) -> None:
        super().__init__(f"a patch {why}")
        self.place = place


@dataclass(frozen=True)
class Link:
    """One patch of a chain, and the manifest of the version that it is to make."""

    patch: Patch
    target: Manifest

    @cached_property
    def spots(self) -> dict[Key, Spot]:
        return spots(self.target)


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunk `chunk` of file number `file`, as `CheckpointStore.write_chunk` takes it."""

    file: int
    chunk: int
    data: bytes


def require_chain(base: Manifest, links: Sequence[Link]) -> None:
    """Raises: WrongPatch: one does not lead from the version before to its own, or has a chunk that is not there."""
    before = base.root
    for place, link in enumerate(links):
        root = link.target.root
        if (link.patch.base, link.patch.target) != (before, root):
            raise WrongPatch(place, f"is from {link.patch.base.hex()[:16]} to {link.patch.target.hex()[:16]}")
        if link.patch.places and max(link.patch.places) >= link.target.chunks:
            raise WrongPatch(place, f"has chunk {max(link.patch.places)} of {link.target.chunks}")
        before = root


def pieces(base: Side, links: Sequence[Link]) -> Iterator[Piece]:
    """The chunks of the last link's target that are not the base's, each verified, in order.

    When it ends, every record of every patch has been looked at: each makes what it should.

    Raises:
        WrongPatch: what a patch makes is not what its target has.
        NotFound: the base or a patch is not here any more.
        OSError: the disk failed.
    """
    require_chain(base.manifest, links)
    last = links[-1]
    files = {file.name: number for number, file in enumerate(last.target.files)}
    for key in dict.fromkeys(key for link in reversed(links) for key in link.spots):
        data = _through(base, links, key)
        if data is not None and key in last.spots:
            yield Piece(files[key[0]], key[1], data)


def _through(base: Side, links: Sequence[Link], key: Key) -> bytes | None:
    """The chunk that the links make at `key`; None where none of them has anything to do there."""
    before = base.spots.get(key)
    touched = any(_number(link, key) in link.patch.places for link in links)
    data = base.read(key) if touched and before is not None else None
    for place, link in enumerate(links):
        try:
            data = _step(link, key, before, data)
        except Malformed as error:
            raise WrongPatch(place, error) from error
        before = link.spots.get(key)
    return data if touched else None


def _number(link: Link, key: Key) -> int | None:
    spot = link.spots.get(key)
    return None if spot is None else spot.number


def _step(link: Link, key: Key, before: Spot | None, data: bytes | None) -> bytes | None:
    """What the link makes of the chunk `data`; None where its target has none there. Raises: Malformed."""
    after = link.spots.get(key)
    if after is None:
        return None
    packed = link.patch.record(after.number)
    if packed is None:
        if before is None or before.digest != after.digest:
            raise Malformed(f"lacks chunk {after.number}")
        return data
    made = unpack(packed, data, after.length)
    if blake3(made).digest() != after.digest:
        raise Malformed(f"makes a wrong chunk {after.number}")
    return made
