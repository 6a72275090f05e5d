"""What a role hands out by libp2p streams: manifests of weights, and rollout files, a piece at a time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Address, Digest
from node.errors import NotFound
from node.files import disk_refused
from node.p2p.content import Kind, Piece
from node.peers.server import Mailbox
from node.roles.member import Member

NOT_HELD = "this node does not hold it"


@dataclass(frozen=True, slots=True)
class HeldPieces:
    """Of one member: its checkpoints' manifests, and the files of `mailbox`.

    Who gets something else bans this node: what an earlier process left is hashed before the first piece of it leaves.
    """

    member: Member
    mailbox: Mailbox | None

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        """Size of the whole, and the piece, once the uplink has room for it: not before is it in memory.

        Raises: NotFound, StoreError.
        """
        path = await (self._manifest if wanted.kind is Kind.MANIFEST else self._file)(wanted.digest)
        size = await asyncio.to_thread(_size, path)
        if wanted.offset >= size:
            raise NotFound(f"it has {size} bytes")
        length = min(wanted.length, size - wanted.offset)
        await self.member.uplink.turn(_sharer(asker), length)
        data = await asyncio.to_thread(_read, path, wanted.offset, length)
        self.member.uplink.sent_bytes += length
        return size, data

    async def turn(self, asker: Address, size: int) -> None:
        """Returns when the uplink has room for `size` bytes that are handed on to `asker` for others."""
        await self.member.uplink.turn(_sharer(asker), size)
        self.member.uplink.sent_bytes += size

    async def _manifest(self, root: Digest) -> Path:
        return await asyncio.to_thread(self.member.checkpoints.manifest_path, root)

    async def _file(self, commitment: Digest) -> Path:
        if self.mailbox is None:
            raise NotFound(NOT_HELD)
        return await self.mailbox.submission(commitment)


def _sharer(asker: Address) -> str:
    """With whom the uplink is shared: streams have no address, and however many peers a node has, it is one."""
    return f"libp2p {asker}"


def _size(path: Path) -> int:
    """Raises: NotFound, StoreError."""
    with _readable(path):
        return path.stat().st_size


def _read(path: Path, offset: int, length: int) -> bytes:
    """Raises: NotFound: it is shorter now; StoreError."""
    with _readable(path), path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    if len(data) < length:
        raise NotFound(NOT_HELD)
    return data


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises: NotFound: there is no such file. StoreError: the disk refuses it."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(NOT_HELD) from error
    except OSError as error:
        raise disk_refused(path, error) from error
