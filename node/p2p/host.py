"""The libp2p process: `python -m node.tied LIFE node.p2p.host ORDERS LISTENER`, which `sidecar` starts.

ORDERS is the descriptor of a socket pair, LISTENER that of a socket which listens. It knows nothing of chain, roles or
files: whoever takes it over has connections.
"""

import itertools
import logging
import os
import resource
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from node.errors import Malformed
from node.p2p.connection import make_upgrader
from node.p2p.limits import MAX_REQUESTS, MEMORY_BYTES
from node.p2p.messages import (
    ANSWERED,
    BUSY,
    HEAD,
    ORDERS,
    REFUSED,
    Admit,
    Alive,
    Ask,
    Asked,
    Dial,
    Done,
    Drop,
    Failed,
    Left,
    Order,
    Ready,
    Recall,
    Reply,
    Report,
    Start,
    decode,
    encode,
    sizes,
)
from node.p2p.streams import REFUSALS
from node.p2p.switch import Switch

REPORTS_WAITING = 256  # for the node to read them; then whoever has something to report waits too
ALIVE_SECONDS = 1.0


def main() -> None:
    orders, listener = (int(argument) for argument in sys.argv[1:])
    logging.disable(logging.CRITICAL)  # py-libp2p has a line for whatever a peer does: it could fill the disk
    with socket.socket(fileno=orders) as connection, socket.socket(fileno=listener) as listening:
        trio.run(_serve, connection, listening)


def bound_memory() -> None:
    """From here on the process may have `MEMORY_BYTES` more address space; where the system can count that."""
    try:
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    except OSError:
        return
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


async def _serve(connection: socket.socket, listening: socket.socket) -> None:
    connection.setblocking(False)
    listening.setblocking(False)
    node = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    start = await _order(node)
    if not isinstance(start, Start):
        raise Malformed("the first order is to start")
    send, receive = trio.open_memory_channel[Report](REPORTS_WAITING)
    async with trio.open_nursery() as nursery:
        host = Host(send, nursery)
        nursery.start_soon(_write, node, receive)
        await host.start(start, listening)
        nursery.start_soon(host.report)
        while (order := await _order(node)) is not None:
            host.obey(order)
        nursery.cancel_scope.cancel()


async def _order(node: trio.SocketStream) -> Order | None:
    prefix = await _exactly(node, HEAD.size)
    if prefix is None:
        return None
    head, body = sizes(prefix)
    data = await _exactly(node, head + body)
    return None if data is None else decode(ORDERS, data[:head], data[head:])


async def _exactly(node: trio.SocketStream, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = await node.receive_some(length - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


async def _write(node: trio.SocketStream, reports: trio.MemoryReceiveChannel[Report]) -> None:
    async with reports:  # after which nobody waits with a report
        async for report in reports:
            await node.send_all(encode(report))


@dataclass(slots=True)
class _Question:
    """A peer's, until the node has answered it."""

    answered: trio.Event = field(default_factory=trio.Event)
    status: int = REFUSED
    body: bytes = b""


@dataclass(slots=True)
class Host:
    """Does what the node orders, and asks it what peers ask."""

    reports: trio.MemorySendChannel[Report]
    nursery: trio.Nursery
    switch: Switch = field(init=False)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    questions: dict[int, _Question] = field(default_factory=dict)
    asks: dict[int, trio.CancelScope] = field(default_factory=dict)  # of the node, by its number

    async def start(self, order: Start, listening: socket.socket) -> None:
        upgrader, peer = make_upgrader(order.body)
        self.switch = Switch(upgrader, peer, order.allow_private, self.reports.send, self.asked, self.nursery)
        self.switch.listen(listening)
        bound_memory()
        await self.reports.send(Ready(peer))

    async def report(self) -> None:
        while True:
            await trio.sleep(ALIVE_SECONDS)
            await self.reports.send(Alive())

    def obey(self, order: Order) -> None:
        match order:
            case Dial():
                self.nursery.start_soon(self._dial, order)
            case Ask(number):
                self.asks[number] = trio.CancelScope()
                self.nursery.start_soon(self._ask, order, self.asks[number])
            case Recall(number):
                if (scope := self.asks.get(number)) is not None:  # else it has been answered meanwhile
                    scope.cancel()
            case Drop(peer):
                self.nursery.start_soon(self.switch.drop, peer)
            case Admit(peer, node):
                self.switch.admit(peer, node)
            case Reply(number, status, body):
                self._reply(number, status, body)
            case Start():
                raise Malformed("started already")

    async def _dial(self, order: Dial) -> None:
        try:
            await self.switch.dial(order.host, order.port, order.peer)
        except REFUSALS as error:
            await self.reports.send(Failed(order.number, said(error)))
        else:
            await self.reports.send(Done(order.number, b""))

    async def _ask(self, order: Ask, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await self.reports.send(await self._outcome(order))
        finally:
            del self.asks[order.number]

    async def _outcome(self, order: Ask) -> Report:
        try:
            status, answer = await self.switch.ask(
                order.peer, order.protocol, order.body, order.limit, order.milliseconds / 1000
            )
        except REFUSALS as error:
            return Failed(order.number, said(error))
        refusal = {REFUSED: "refused", BUSY: "busy"}.get(status, "no known answer")
        return Done(order.number, answer) if status == ANSWERED else Failed(order.number, refusal)

    async def asked(self, peer: str, protocol: str, body: bytes) -> tuple[int, bytes]:
        """What the node answers to a peer's request."""
        if len(self.questions) >= MAX_REQUESTS:
            return BUSY, b""
        number, question = next(self.numbers), _Question()
        self.questions[number] = question
        try:
            await self.reports.send(Asked(number, peer, protocol, body))
            await question.answered.wait()
        except trio.Cancelled:
            self._leave(number)
            raise
        finally:
            del self.questions[number]
        return question.status, question.body

    def _leave(self, number: int) -> None:
        """Has the node answer no more; where it reads no reports now, it goes on in vain, for as long as it may."""
        with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self.reports.send_nowait(Left(number))

    def _reply(self, number: int, status: int, body: bytes) -> None:
        question = self.questions.get(number)
        if question is not None:  # else whoever asked has gone
            question.status, question.body = status, body
            question.answered.set()


def said(error: BaseException) -> str:
    """What the node may tell its user: of what the system refuses, the system's words alone."""
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    if isinstance(error, OSError):
        return (error.strerror or str(error))[:300]
    return f"{type(error).__name__}: {error}"[:300]
