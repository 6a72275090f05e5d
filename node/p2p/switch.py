"""All connections of the libp2p process: accepted, dialled, counted and closed."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio
from libp2p.transport.upgrader import TransportUpgrader

from node.buckets import Rates
from node.crowd import Crowd
from node.errors import Malformed
from node.ip import is_public, subscriber
from node.p2p.connection import Connection, Handler, secured
from node.p2p.limits import (
    DIAL_SECONDS,
    FRAMES_BURST,
    FRAMES_PER_SECOND,
    HANDSHAKE_SECONDS,
    HANDSHAKES_BURST,
    HANDSHAKES_PER_SECOND,
    MAX_ADDRESSES,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MAX_CONNECTIONS_PER_PEER,
    MAX_NODES,
    MAX_UNKNOWN,
    MAX_UNKNOWN_PER_ADDRESS,
    REQUESTS_BURST,
    REQUESTS_PER_SECOND,
)
from node.p2p.messages import Closed, Opened, Report
from node.p2p.streams import REFUSALS
from node.p2p.untaken import Untaken

if TYPE_CHECKING:
    from trio_typing import TaskStatus

ACCEPT_PAUSE_SECONDS = 0.05  # when the process is out of file descriptors
CLOSE_SECONDS = 1.0

Tell = Callable[[Report], Awaitable[None]]


@dataclass(slots=True)
class Switch:
    """Of one node. `tell` hears of peers that come and go, `handler` answers what they ask."""

    upgrader: TransportUpgrader
    peer: str
    allow_private: bool
    tell: Tell
    handler: Handler
    nursery: trio.Nursery
    connections: list[Connection] = field(default_factory=list)
    told: set[str] = field(default_factory=set)  # peers of which it was told that they are there
    shaking: dict[trio.SocketStream, str] = field(default_factory=dict)  # not secured yet, with their addresses
    unknown: Crowd = field(default_factory=lambda: Crowd(MAX_UNKNOWN, MAX_UNKNOWN_PER_ADDRESS))  # that came, by address
    untaken: Untaken = field(default_factory=Untaken)
    handshakes: Rates = field(init=False)  # by address
    requests: Rates = field(init=False)  # by node
    frames: Rates = field(init=False)  # by node

    def __post_init__(self) -> None:
        self.handshakes = Rates(HANDSHAKES_PER_SECOND, HANDSHAKES_BURST, MAX_ADDRESSES, trio.current_time)
        self.requests = Rates(REQUESTS_PER_SECOND, REQUESTS_BURST, MAX_NODES, trio.current_time)
        self.frames = Rates(FRAMES_PER_SECOND, FRAMES_BURST, MAX_NODES, trio.current_time)

    def listen(self, listening: socket.socket) -> None:
        """Takes connections from now on."""
        self.nursery.start_soon(self._accept, trio.SocketListener(trio.socket.from_stdlib_socket(listening)))

    async def _accept(self, listener: trio.SocketListener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            address = _address_of(stream)
            if not self._may_come(address, stream):
                await trio.aclose_forcefully(stream)
                continue
            self.shaking[stream] = address
            self.nursery.start_soon(self._take, stream, address)

    def _may_come(self, address: str, stream: trio.SocketStream) -> bool:
        """Whether there is a place, and one of those that `address` may have."""
        everybody = [*(connection.address for connection in self.connections), *self.shaking.values()]
        return (
            len(everybody) < MAX_CONNECTIONS
            and everybody.count(address) < MAX_CONNECTIONS_PER_ADDRESS
            and not self.unknown.has_its_most(address)
            and self.handshakes.of(address).take()
            and self.unknown.enter(address, stream, stream.socket.close)
        )

    async def _take(self, stream: trio.SocketStream, address: str) -> None:
        try:
            connection = await self._shaken(stream, address)
            if connection is not None:
                await self._keep(connection)
        finally:
            self.unknown.leave(address, stream)

    async def _shaken(self, stream: trio.SocketStream, address: str) -> Connection | None:
        try:
            with trio.fail_after(HANDSHAKE_SECONDS):
                return await secured(self.upgrader, stream, address, None)
        except REFUSALS:
            await trio.aclose_forcefully(stream)
            return None
        finally:
            del self.shaking[stream]

    async def dial(self, host: str, port: int, peer: str) -> None:
        """A connection with `peer`, and nobody else, at `host`. Raises: `REFUSALS`: there is none."""
        if self._with(peer):
            return
        if peer == self.peer:
            raise Malformed("that is this node")
        with trio.fail_after(DIAL_SECONDS):
            stream, address = await self._connect(host, port)
            try:
                connection = await secured(self.upgrader, stream, address, peer)
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            await self.nursery.start(self._keep, connection)

    async def _connect(self, host: str, port: int) -> tuple[trio.SocketStream, str]:
        """The first address of `host` that takes the connection, private ones only where that is permitted."""
        refusal: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, where in await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM):
            if not self.allow_private and not is_public(str(where[0])):
                refusal = OSError(f"{where[0]} is not public; only --allow-private (devnets) permits it")
                continue
            connection = trio.socket.socket(family, kind, protocol)
            try:
                await connection.connect(where)
                return trio.SocketStream(connection), subscriber(str(where[0]))
            except OSError as error:
                refusal = error
                connection.close()
        raise refusal

    async def _keep(self, connection: Connection, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Holds `connection` until it is over; its peer is told of once, however many connections there are."""
        same = self._with(connection.peer)
        if len(same) >= MAX_CONNECTIONS_PER_PEER or connection.peer == self.peer:
            await connection.close()
            task_status.started()
            return
        self.connections.append(connection)
        try:
            for other in same:
                if other.admitted.is_set():
                    self._admit(connection, other.node)
            await connection.serve(self.handler, self.untaken, partial(self._opened, connection), task_status)
        except REFUSALS:
            pass  # which is this connection's end
        finally:
            with trio.CancelScope(shield=True), suppress(trio.BrokenResourceError):  # if nobody is there to be told
                with trio.move_on_after(CLOSE_SECONDS):
                    await connection.close()
                self.connections.remove(connection)
                if not self._with(connection.peer) and connection.peer in self.told:
                    self.told.discard(connection.peer)
                    await self.tell(Closed(connection.peer))

    async def _opened(self, connection: Connection) -> None:
        if connection.peer not in self.told:
            self.told.add(connection.peer)
            await self.tell(Opened(connection.peer, connection.dialled))

    def _with(self, peer: str) -> list[Connection]:
        return [connection for connection in self.connections if connection.peer == peer]

    def admit(self, peer: str, node: str) -> None:
        """`peer` is `node`'s."""
        for connection in self._with(peer):
            self._admit(connection, node)

    def _admit(self, connection: Connection, node: str) -> None:
        self.unknown.leave(connection.address, connection.stream)
        connection.admit(node, self.requests.of(node), self.frames.of(node))

    async def drop(self, peer: str) -> None:
        for connection in self._with(peer):
            await connection.close()

    async def ask(self, peer: str, protocol: str, body: bytes, limit: int, seconds: float) -> tuple[int, bytes]:
        """The peer's status and answer. Raises: `REFUSALS`."""
        for connection in self._usable(peer):
            return await connection.ask(protocol, body, limit, seconds)
        raise OSError("not connected")

    def _usable(self, peer: str) -> Iterator[Connection]:
        return (c for c in reversed(self._with(peer)) if c.muxed.is_established)


def _address_of(stream: trio.SocketStream) -> str:
    """Whom limits are counted for; nobody where the peer has gone already."""
    try:
        return subscriber(str(stream.socket.getpeername()[0]))
    except OSError:
        return ""
