"""What a role hands out by libp2p streams: manifests of weights, and rollout files, a piece at a time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest
from node.errors import NotFound
from node.files import disk_refused
from node.p2p.content import Kind, Piece
from node.roles.member import Member
from node.rollouts.store import RolloutStore

LIBP2P = "libp2p"  # whose share of the uplink it is: streams have no address


@dataclass(frozen=True, slots=True)
class HeldPieces:
    """Of one member: its checkpoints' manifests, and its rollout files."""

    member: Member

    async def piece(self, wanted: Piece) -> tuple[int, bytes]:
        """Size of the whole, and the piece, once the uplink has room for it: not before is it in memory.

        Raises: NotFound, StoreError.
        """
        path = await asyncio.to_thread(self._path, wanted.kind, wanted.digest)
        size = await asyncio.to_thread(_size, path)
        if wanted.offset >= size:
            raise NotFound(f"it has {size} bytes")
        await self.member.uplink.turn(LIBP2P, min(wanted.length, size - wanted.offset))
        data = await asyncio.to_thread(_read, path, wanted)
        self.member.uplink.sent_bytes += len(data)
        return size, data

    async def turn(self, size: int) -> None:
        """Returns when the uplink has room for `size` bytes that are handed on for others."""
        await self.member.uplink.turn(LIBP2P, size)
        self.member.uplink.sent_bytes += size

    def _path(self, kind: Kind, digest: Digest) -> Path:
        if kind is Kind.MANIFEST:
            return self.member.checkpoints.manifest_path(digest)
        files = RolloutStore(self.member.state.rollouts)
        if not files.holds(digest):
            raise NotFound("this node does not hold it")
        return files.path(digest)


def _size(path: Path) -> int:
    """Raises: NotFound, StoreError."""
    with _readable(path):
        return path.stat().st_size


def _read(path: Path, wanted: Piece) -> bytes:
    """Raises: NotFound, StoreError."""
    with _readable(path), path.open("rb") as file:
        file.seek(wanted.offset)
        return file.read(wanted.length)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises: NotFound: there is no such file. StoreError: the disk refuses it."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("this node does not hold it") from error
    except OSError as error:
        raise disk_refused(path, error) from error
