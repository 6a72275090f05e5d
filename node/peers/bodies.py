"""Reading what peers send: so much of it in memory at a time, so much from each address, and none of it for long."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from node.errors import Malformed, NotFound
from node.ip import subscriber
from node.transport.limits import LEAST_BYTES_PER_SECOND

SHARES = 4  # of a room; an address gets one. A local network is one address: its share is still 16 MiB of files
BODY_SECONDS = 20.0  # for a small body to arrive whole


class Busy(NotFound):
    """This node cannot take more at present: the sender repeats (503)."""


class Late(NotFound):
    """The body did not arrive in time: the sender repeats (408)."""


@dataclass(slots=True)
class Room:
    """How many bytes of bodies may be in memory, all requests together: counted as they come, not as announced."""

    size: int
    held: Counter[str] = field(default_factory=Counter)  # by whoever sent them

    @contextmanager
    def claimed(self, address: str | None) -> Iterator["Claim"]:
        claim = Claim(self, subscriber(address or ""))
        try:
            yield claim
        finally:
            self.held[claim.sender] -= claim.size
            self.held += Counter()  # drops those that hold nothing

    def grow(self, sender: str, size: int) -> None:
        """Raises: Busy."""
        if self.held.total() + size > self.size or self.held[sender] + size > self.size // SHARES:
            raise Busy("this node is taking in as much as it can hold: send it again")
        self.held[sender] += size


@dataclass(slots=True)
class Claim:
    """What one request holds of the room."""

    room: Room
    sender: str
    size: int = 0

    def grow(self, size: int) -> None:
        """Raises: Busy."""
        self.room.grow(self.sender, size)
        self.size += size


async def read_body(
    request: web.Request, limit: int, claim: Claim | None = None, seconds: float = BODY_SECONDS
) -> bytes:
    """At most `limit` bytes, accounted to `claim`, within `seconds` and what an uplink takes at the least for `limit`.

    Raises: Malformed, Busy, Late.
    """
    if request.content_length is not None and request.content_length > limit:
        raise Malformed(f"body of {request.content_length} bytes: at most {limit} are read")
    try:
        async with asyncio.timeout(seconds + limit / LEAST_BYTES_PER_SECOND):
            return await _read(request, limit, claim)
    except TimeoutError as error:
        raise Late("the body did not arrive in time: send it again") from error


async def _read(request: web.Request, limit: int, claim: Claim | None) -> bytes:
    body = bytearray()
    async for part in request.content.iter_chunked(1 << 16):
        if len(body) + len(part) > limit:
            raise Malformed(f"body over {limit} bytes")
        if claim is not None:
            claim.grow(len(part))
        body += part
    return bytes(body)
