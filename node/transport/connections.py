"""GET requests whose bodies are received straight into the caller's buffer: for what is large.

A body that a general client reads is copied three times before it is whole; here the kernel writes it where it is
wanted, at half the processor time. One event loop does it all, so giving a request up ends it at once.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass

from yarl import URL

from node.errors import Malformed
from node.transport.dialing import Dialer
from node.transport.heads import MAX_HEAD_BYTES, Head, parse_head
from node.transport.outgoing import Timeouts

MAX_IDLE = 64  # connections kept for the next request, and of one host
MAX_IDLE_OF_HOST = 8
MAX_IDLE_SECONDS = 15.0  # half of what our servers keep one open for (`Limits.idle_seconds`)
END_OF_HEAD = b"\r\n\r\n"

_Host = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is the filled part of the caller's buffer, empty unless the status is 200; it took `seconds` to come,
    counted from the head."""

    status: int
    body: memoryview
    seconds: float


class Connections:
    """Asks hostile peers, several at a time; close it. Follows no redirect, unpacks nothing, sends no cookie."""

    def __init__(self, allow_private: bool, timeouts: Timeouts | None = None) -> None:
        self._dialer = Dialer(allow_private)
        self._timeouts = timeouts or Timeouts()
        self._idle: dict[_Host, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> "Connections":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what is idle. Requests under way are their callers' to cancel."""
        for connection in [each for kept in self._idle.values() for each in kept]:
            connection.abort()
        self._idle.clear()
        await self._dialer.close()

    async def get(
        self,
        url: URL,
        into: memoryview,
        *,
        exact: bool = False,
        wait_seconds: float = 0.0,
        timeouts: Timeouts | None = None,
    ) -> Answer:
        """The answer of a vetted `url`; a body of status 200 lies in `into`, and fills it if `exact`.

        The peer may hold its first byte back for `wait_seconds` (a long poll).

        Raises:
            Malformed: the answer is no HTTP, does not say its length, or is longer than `into`, or shorter if `exact`.
            OSError: not connected, or it broke off.
            TimeoutError: nothing came for `idle_seconds`, or not all in `total_seconds` (`timeouts`).
        """
        limits = timeouts or self._timeouts
        async with asyncio.timeout(limits.total_seconds + wait_seconds):
            connection = self._kept(_host(url))
            if connection is not None:
                answer = await connection.ask(url, into, exact, limits.idle_seconds + wait_seconds)
                if answer is not None:
                    return self._keep(url, connection, answer)
            connection = await self._connect(url, limits)
            answer = await connection.ask(url, into, exact, limits.idle_seconds + wait_seconds)
            if answer is None:
                raise ConnectionResetError("it closed the connection without an answer")
            return self._keep(url, connection, answer)

    async def _connect(self, url: URL, limits: Timeouts) -> "_Connection":
        secure = url.scheme == "https"
        if secure and self._tls is None:
            self._tls = ssl.create_default_context()
        async with asyncio.timeout(limits.connect_seconds):
            connected = await self._dialer.dial(url)
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection,
                    sock=connected,
                    ssl=self._tls if secure else None,
                    server_hostname=url.raw_host if secure else None,
                )
            except BaseException:
                connected.close()
                raise
        return connection

    def _kept(self, host: _Host) -> "_Connection | None":
        kept = self._idle.get(host, [])
        while kept:
            connection = kept.pop()
            if not kept:
                del self._idle[host]
            if connection.usable(time.monotonic() - MAX_IDLE_SECONDS):
                return connection
            connection.abort()
        return None

    def _keep(self, url: URL, connection: "_Connection", answer: Answer) -> Answer:
        kept = self._idle.get(_host(url), [])
        if connection.keeps_open and len(kept) < MAX_IDLE_OF_HOST and sum(map(len, self._idle.values())) < MAX_IDLE:
            self._idle[_host(url)] = [*kept, connection]
        else:
            connection.abort()
        return answer


class _Connection(asyncio.BufferedProtocol):
    """One connection, a request at a time."""

    def __init__(self) -> None:
        self._room = bytearray(MAX_HEAD_BYTES)
        self._answered: asyncio.Future[Head | None] | None = None  # None: it was closed before it said anything
        self._begin(memoryview(b""), exact=False)
        self._lost = False
        self.keeps_open = True

    def usable(self, since: float) -> bool:
        """Whether it can be asked: neither closed nor silent since before `since`, monotonic."""
        return not self._lost and not self._transport.is_closing() and self._moved > since

    def abort(self) -> None:
        self._transport.abort()

    async def ask(self, url: URL, into: memoryview, exact: bool, idle_seconds: float) -> Answer | None:
        """None: it was closed before a byte of the answer came. Raises: as `Connections.get`."""
        if self._lost:
            return None
        self._begin(into, exact)
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

    def _begin(self, into: memoryview, exact: bool) -> None:
        self._into, self._exact = into, exact
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
            elif self._came == self._length:
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
        self._came = here
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


def _host(url: URL) -> _Host:
    return (url.scheme, url.raw_host or "", url.port or 0)
