"""Content by its digest, a piece of at most a MiB at a time: manifests and rollout files of nodes that nobody can dial.

Request: u8 kind || 32 digest || u64 offset || u32 length. Answer: u64 size of the whole || the piece. Big-endian.
Whoever gets the whole checks it, as if it had come by HTTP; a relay that hands pieces on is trusted with nothing.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from ledger.base import Address, Digest
from node.errors import Malformed
from node.p2p.pace import MOST_BYTES, Pace

PIECE_BYTES: Final = MOST_BYTES  # in flight on one stream, at most
REQUEST: Final = struct.Struct("!B32sQI")
SIZE: Final = struct.Struct("!Q")


class Kind(IntEnum):
    MANIFEST = 1  # by manifest root
    FILE = 2  # a rollout file, by commitment


@dataclass(frozen=True, slots=True)
class Piece:
    """Of the content that `digest` names: up to `length` bytes from `offset` on."""

    kind: Kind
    digest: Digest
    offset: int
    length: int = PIECE_BYTES

    def encode(self) -> bytes:
        return REQUEST.pack(self.kind, self.digest, self.offset, self.length)

    @classmethod
    def parse(cls, data: bytes) -> "Piece":
        """Raises: Malformed."""
        try:
            kind, digest, offset, length = REQUEST.unpack(data)
            wanted = cls(Kind(kind), Digest(digest), offset, length)
        except (struct.error, ValueError) as error:
            raise Malformed(f"request for content: {error}") from error
        if not 0 < length <= PIECE_BYTES:
            raise Malformed(f"a piece of {length} bytes; at most {PIECE_BYTES} are sent")
        return wanted


@dataclass(frozen=True, slots=True)
class Content:
    """What somebody wants whole: at most `limit` bytes that `require` takes for what `digest` names."""

    kind: Kind
    digest: Digest
    limit: int
    require: Callable[[bytes], None]  # raises Malformed where it is something else; may block


class PieceSource(Protocol):
    """What a role holds for others."""

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        """Size of the whole, and the piece, once it may leave for `asker`. Raises: NotFound, StoreError."""

    async def turn(self, asker: Address, size: int) -> None:
        """Returns when `size` bytes more, of somebody else's content, may leave for `asker`."""


def encode_answer(size: int, data: bytes) -> bytes:
    return SIZE.pack(size) + data


async def fetched(ask: Callable[[bytes], Awaitable[bytes]], content: Content, data: bytearray, pace: Pace) -> bytes:
    """The whole content, piece by piece; nothing of it is checked but its size.

    Args:
        data: what has come of it already; what comes is added.
        pace: what is asked for at once; a piece may be shorter.

    Raises:
        NotFound: it is not there, or broke off.
        Malformed: it is over its limit, or its pieces do not fit together.
    """
    size, limit = None, content.limit
    while size is None or len(data) < size:
        began = asyncio.get_running_loop().time()
        answer = await ask(Piece(content.kind, content.digest, len(data), pace.size).encode())
        if len(answer) <= SIZE.size:
            raise Malformed("a piece without bytes")
        (claimed,) = SIZE.unpack_from(answer)
        piece = answer[SIZE.size :]
        if claimed > limit or size not in (None, claimed) or len(piece) > min(pace.size, claimed - len(data)):
            raise Malformed(f"a piece of {len(piece)} bytes of {claimed}; at most {limit} are read")
        pace.came(len(piece), asyncio.get_running_loop().time() - began)
        size = claimed
        data += piece
    return bytes(data)
