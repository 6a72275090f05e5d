"""The node's side of its libp2p process: started, asked, watched, and begun anew when it dies or hangs.

Whatever happens to that process, no call waits longer than its own time limit, and nothing here grows: what is asked
beyond `MAX_ASKS` fails at once, and what peers ask beyond `MAX_REQUESTS` is not begun. The process refuses that
already, but may be in strange hands.
"""

import asyncio
import importlib.util
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from node.errors import Malformed, NotFound
from node.log import LOGGER, event, warn
from node.p2p.addresses import PeerAddress
from node.p2p.answering import Answering
from node.p2p.launching import launched
from node.p2p.limits import DIAL_SECONDS, MAX_ASKS, MAX_BODY_BYTES
from node.p2p.link import ASK_SECONDS, Listener, Nobody
from node.p2p.listening import Listening
from node.p2p.messages import (
    HEAD,
    REPORTS,
    Admit,
    Alive,
    Ask,
    Asked,
    Closed,
    Dial,
    Done,
    Drop,
    Failed,
    Left,
    Opened,
    Order,
    Ready,
    Recall,
    Report,
    Start,
    decode,
    encode,
    sizes,
)

PACKAGE = "libp2p"
START_SECONDS = 60.0
HANG_SECONDS = 15.0  # without a word of a process that says every second that it is alive
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0  # before a process is begun anew; doubled each time
STEADY_SECONDS = 120.0  # a process that lived so long did not fail at once: the pause is the first one again
MAX_UNSENT_BYTES = 8 << 20  # of orders that the process has not read; more are not sent
MARGIN_SECONDS = 2.0  # for the process itself to say that time is over


@dataclass(slots=True)
class Sidecar:
    """A `Link` over a process of its own. `running` starts it and keeps it going."""

    listening: Listening
    log: Path
    rng: random.Random = field(default_factory=random.Random)
    address: PeerAddress | None = None
    reason: str | None = "starting"  # why there is no process, while there is none
    starts: int = 0
    pid: int | None = None
    first_pause: float = FIRST_PAUSE_SECONDS
    hang_seconds: float = HANG_SECONDS
    package: str = PACKAGE
    _listener: Listener = field(default_factory=Nobody)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    _writer: asyncio.StreamWriter | None = None

    @asynccontextmanager
    async def running(self, listener: Listener) -> AsyncIterator[None]:
        """The process runs, and is begun anew when it ends, while the block does; `listener` hears of its peers."""
        self._listener = listener
        keeping = asyncio.create_task(self._keep())
        keeping.add_done_callback(self._over)
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def _over(self, keeping: "asyncio.Task[None]") -> None:
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            self.reason = "it failed: the log says how"
            LOGGER.error("libp2p is off: this is a bug", exc_info=error)

    async def _keep(self) -> None:
        if importlib.util.find_spec(self.package) is None:
            self.reason = f"the package {self.package} is not installed"
            warn("libp2p is off: the chain's record and HTTP go on", reason=self.reason)
            return
        pause = self.first_pause
        while True:
            began = time.monotonic()
            self.reason = await self._live()
            if time.monotonic() - began >= STEADY_SECONDS:
                pause = self.first_pause
            warn("the libp2p process ended: it is begun anew, the chain's record and HTTP go on", seconds=pause,
                 reason=self.reason)  # fmt: skip
            await asyncio.sleep(pause * self.rng.uniform(0.8, 1.2))
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _live(self) -> str:
        """One process, from its start to its end; why it ended."""
        try:
            async with launched(self.listening.socket, self.log) as child:
                self.starts, self.pid = self.starts + 1, child.process.pid
                reason = await self._converse(child.orders)
        except OSError as error:
            return f"it cannot be started: {error}"
        return child.last_words() if reason is None else reason

    async def _converse(self, ours: socket.socket) -> str | None:
        """Until the process ends, whose own words say why then, or until it has to be ended, which is said."""
        reader, self._writer = await asyncio.open_connection(sock=ours)
        answering = Answering(partial(_write, self._writer), partial(_drained, self._writer))
        try:
            self._send(Start(self.listening.allow_private, self.listening.secret))
            self._take(await _heard(reader, START_SECONDS), answering)
            while True:
                self._take(await _heard(reader, self.hang_seconds), answering)
        except TimeoutError:
            return "it said nothing for too long"
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except Malformed as error:
            return f"it talked nonsense: {error}"
        finally:
            answering.end()
            self._forget()

    def _take(self, report: Report, answering: Answering) -> None:
        match report:
            case Ready(peer):
                self.address, self.reason = self.listening.address, None
                event("libp2p on", peer=peer, port=self.address.port)
                self._listener.ready()
            case Opened(peer, dialled):
                self._listener.opened(peer, dialled)
            case Closed(peer):
                self._listener.closed(peer)
            case Asked():
                answering.begin(report, self._listener.asked)
            case Left(number):
                answering.leave(number)
            case Done() | Failed():
                self._end(report)
            case Alive():
                pass  # what it says is that it says something

    def _end(self, report: Done | Failed) -> None:
        waiting = self._waiting.get(report.number)
        if waiting is None or waiting.done():
            return
        if isinstance(report, Done):
            waiting.set_result(report.body)
        else:
            waiting.set_exception(NotFound(report.reason))

    async def dial(self, address: PeerAddress) -> None:
        """A connection with the peer at `address`. Raises: NotFound."""
        number = next(self._numbers)
        await self._done(number, Dial(number, address.host, address.port, address.peer), DIAL_SECONDS)

    async def ask(
        self, peer: str, protocol: str, body: bytes, limit: int = MAX_BODY_BYTES, seconds: float = ASK_SECONDS
    ) -> bytes:
        """What `peer` answers. Raises: NotFound; Malformed: `body` is over what a request may have."""
        number = next(self._numbers)
        return await self._done(number, Ask(number, peer, protocol, limit, int(seconds * 1000), body), seconds)

    async def _done(self, number: int, order: Dial | Ask, seconds: float) -> bytes:
        if len(self._waiting) >= MAX_ASKS:
            raise NotFound(f"more than {MAX_ASKS} questions at once")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._send(order)
            async with asyncio.timeout(seconds + MARGIN_SECONDS):
                return await future
        except TimeoutError as error:
            raise NotFound(f"no answer within {seconds:g} s") from error
        finally:
            del self._waiting[number]
            if future.cancelled():  # nobody waits for it
                self._recall(number)

    def _recall(self, number: int) -> None:
        with suppress(NotFound):
            self._send(Recall(number))

    def admit(self, peer: str, node: str) -> None:
        with suppress(NotFound):
            self._send(Admit(peer, node))

    def drop(self, peer: str) -> None:
        with suppress(NotFound):
            self._send(Drop(peer))

    def _send(self, order: Order) -> None:
        """Raises: NotFound: there is no process, or it does not read; Malformed: over a limit, nothing was sent."""
        if self._writer is None:
            raise NotFound(f"libp2p is off: {self.reason}")
        _write(self._writer, order)

    def _forget(self) -> None:
        self.address = self.pid = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotFound("the libp2p process ended"))
        self._listener.lost()


async def _heard(reader: asyncio.StreamReader, seconds: float) -> Report:
    async with asyncio.timeout(seconds):
        head, body = sizes(await reader.readexactly(HEAD.size))
        data = await reader.readexactly(head + body)
    return decode(REPORTS, data[:head], data[head:])


def _write(writer: asyncio.StreamWriter, order: Order) -> None:
    """Raises: NotFound: the process of `writer` has ended, or does not read; Malformed."""
    if writer.is_closing():
        raise NotFound("libp2p is off: the process has ended")
    if writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
        raise NotFound("the libp2p process does not read")
    writer.write(encode(order))


async def _drained(writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await writer.drain()
