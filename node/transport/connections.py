"""GET requests whose bodies are received straight into the caller's buffer, over connections that are used again."""

import asyncio
import ssl
import time

from yarl import URL

from node.transport.dialing import Dialer
from node.transport.outgoing import Timeouts
from node.transport.receiving import Answer, Arriving, Connection

MAX_IDLE = 64  # connections kept for the next request, and of one host
MAX_IDLE_OF_HOST = 8
MAX_IDLE_SECONDS = 15.0  # half of what our servers keep one open for (`Limits.idle_seconds`)

_Host = tuple[str, str, int]


class Connections:
    """Asks hostile peers, several at a time; close it. Follows no redirect, unpacks nothing, sends no cookie."""

    def __init__(self, allow_private: bool, timeouts: Timeouts | None = None) -> None:
        self._dialer = Dialer(allow_private)
        self._timeouts = timeouts or Timeouts()
        self._idle: dict[_Host, list[Connection]] = {}
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
        arriving: Arriving | None = None,
    ) -> Answer:
        """The answer of a vetted `url`; a body of status 200 lies in `into`, and fills it if `exact`. What is here of
        it is counted in `arriving`.

        The peer may hold its first byte back for `wait_seconds` (a long poll).

        Raises:
            Malformed: the answer is no HTTP, does not say its length, or is longer than `into`, or shorter if `exact`.
            OSError: not connected, or it broke off.
            TimeoutError: nothing came for `idle_seconds`, or not all in `total_seconds` (`timeouts`).
        """
        limits, arriving = timeouts or self._timeouts, arriving or Arriving()
        async with asyncio.timeout(limits.total_seconds + wait_seconds):
            connection = self._kept(_host(url))
            if connection is not None:
                answer = await connection.ask(url, into, exact, limits.idle_seconds + wait_seconds, arriving)
                if answer is not None:
                    return self._keep(url, connection, answer)
            connection = await self._connect(url, limits)
            answer = await connection.ask(url, into, exact, limits.idle_seconds + wait_seconds, arriving)
            if answer is None:
                raise ConnectionResetError("it closed the connection without an answer")
            return self._keep(url, connection, answer)

    async def _connect(self, url: URL, limits: Timeouts) -> Connection:
        secure = url.scheme == "https"
        if secure and self._tls is None:
            self._tls = ssl.create_default_context()
        async with asyncio.timeout(limits.connect_seconds):
            connected = await self._dialer.dial(url)
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection,
                    sock=connected,
                    ssl=self._tls if secure else None,
                    server_hostname=url.raw_host if secure else None,
                )
            except BaseException:
                connected.close()
                raise
        return connection

    def _kept(self, host: _Host) -> Connection | None:
        self._forget_old()
        kept = self._idle.pop(host, [])
        connection = kept.pop() if kept else None
        if kept:
            self._idle[host] = kept
        return connection

    def _keep(self, url: URL, connection: Connection, answer: Answer) -> Answer:
        kept = self._idle.get(_host(url), [])
        if connection.keeps_open and len(kept) < MAX_IDLE_OF_HOST and sum(map(len, self._idle.values())) < MAX_IDLE:
            self._idle[_host(url)] = [*kept, connection]
        else:
            connection.abort()
        return answer

    def _forget_old(self) -> None:
        since = time.monotonic() - MAX_IDLE_SECONDS
        for host, kept in list(self._idle.items()):
            for connection in [each for each in kept if not each.usable(since)]:
                connection.abort()
                kept.remove(connection)
            if not kept:
                del self._idle[host]


def _host(url: URL) -> _Host:
    return (url.scheme, url.raw_host or "", url.port or 0)
