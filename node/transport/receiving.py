"""One connection, a request at a time, whose answer's body is received straight into the caller's buffer.

A body that a general client reads is copied three times before it is whole; here the kernel writes it where it is
wanted, at half the processor time. One event loop does it all, so giving a request up ends it at once.
"""

import asyncio
import time
from dataclasses import dataclass

from yarl import URL

from node.errors import Malformed
from node.transport.heads import MAX_HEAD_BYTES, Head, parse_head

END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is the filled part of the caller's buffer, empty unless the status is 200; it took `seconds` to come,
    counted from the head."""

    status: int
    body: memoryview
    seconds: float


@dataclass(slots=True)
class Arriving:
    """How many bytes of an answer's body are here, for whoever looks meanwhile."""

    count: int = 0


class Connection(asyncio.BufferedProtocol):
    """One connection, a request at a time."""

    def __init__(self) -> None:
        self._room = bytearray(MAX_HEAD_BYTES)
        self._answered: asyncio.Future[Head | None] | None = None  # None: it was closed before it said anything
        self._begin(memoryview(b""), False, Arriving())
        self._lost = False
        self.keeps_open = True

    def usable(self, since: float) -> bool:
        """Whether it can be asked: neither closed nor silent since before `since`, monotonic."""
        return not self._lost and not self._transport.is_closing() and self._moved > since

    def abort(self) -> None:
        self._transport.abort()

    async def ask(
        self, url: URL, into: memoryview, exact: bool, idle_seconds: float, arriving: Arriving
    ) -> Answer | None:
        """None: it was closed before a byte of the answer came. Raises: as `Connections.get`."""
        if self._lost:
            return None
        self._begin(into, exact, arriving)
        answered = self._answered = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(_request(url))
            await self._until(answered, idle_seconds)
            head = answered.result()
        except BaseException:
            self.abort()  # or what still comes would be written into a buffer that is somebody else's by then
            if answered.done():
                answered.exception()  # seen, even if this request was given up meanwhile
            raise
        finally:
            self._answered = None
        if head is None:
            return None
        return Answer(head.status, into[: self._length], max(self._moved - self._headed, 1e-6))

    async def _until(self, answered: "asyncio.Future[Head | None]", idle_seconds: float) -> None:
        while not answered.done():
            moved, left = self._moved, self._moved + idle_seconds - time.monotonic()
            await asyncio.wait([answered], timeout=max(left, 0.0))
            if not answered.done() and self._moved == moved:
                raise TimeoutError(f"nothing came for {idle_seconds:g} s")

    def _begin(self, into: memoryview, exact: bool, arriving: Arriving) -> None:
        self._into, self._exact, self._arriving = into, exact, arriving
        arriving.count = 0
        self._head: Head | None = None
        self._came = 0  # of the head, and of the body once there is one
        self._length = 0
        self._moved = self._headed = time.monotonic()

    # --- What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if self._came or self._head is not None:
            self._fail(ConnectionResetError(f"it broke off after {self._came} bytes: {error or 'closed'}"))
        elif self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def get_buffer(self, hint: int) -> memoryview:
        if self._answered is None or self._answered.done():  # nothing should come; asyncio reads the end of it here too
            return memoryview(self._room)
        if self._head is None:
            return memoryview(self._room)[self._came :]
        return self._into[self._came : self._length]

    def buffer_updated(self, count: int) -> None:
        self._came += count
        self._moved = time.monotonic()
        try:
            if self._answered is None or self._answered.done():
                raise Malformed("it speaks without being asked")
            if self._head is None:
                self._look_for_head()
                return
            self._arriving.count = self._came
            if self._came == self._length:
                self._answered.set_result(self._head)
        except Malformed as error:
            self._fail(error)

    def _look_for_head(self) -> None:
        end = self._room.find(END_OF_HEAD, 0, self._came)
        if end >= 0:
            self._begin_body(parse_head(bytes(self._room[:end])), end + len(END_OF_HEAD))
        elif self._came == MAX_HEAD_BYTES:
            raise Malformed(f"a head of over {MAX_HEAD_BYTES} bytes")

    def _begin_body(self, head: Head, start: int) -> None:
        """The first bytes of the body came with the head."""
        assert self._answered is not None
        here = self._came - start
        self._headed, self._head = self._moved, head
        if head.status != 200:  # what it says of it is not read, unless it is here already
            self._came, self.keeps_open = 0, head.keeps_open and head.length == here
            self._answered.set_result(head)
            return
        self._length = _required(head, len(self._into), self._exact)
        self.keeps_open = head.keeps_open
        if here > self._length:
            raise Malformed("it says more than the length that it announced")
        self._into[:here] = self._room[start : self._came]
        self._came = self._arriving.count = here
        if here == self._length:
            self._answered.set_result(head)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self.abort()


def _required(head: Head, room: int, exact: bool) -> int:
    """An answer announces its length, so that one broken off is told from a wrong one, and endless ones never begin."""
    if head.length is None or head.length > room or (exact and head.length != room):
        raise Malformed(f"a body of {head.length} bytes where {'' if exact else 'at most '}{room} were expected")
    return head.length


def _request(url: URL) -> bytes:
    """Raises: UnicodeEncodeError, a ValueError."""
    lines = (
        f"GET {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        "Accept-Encoding: identity",
        "User-Agent: intellect-node",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
