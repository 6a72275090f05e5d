"""All connections of the libp2p process: accepted, dialled, counted and closed."""

import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio
from libp2p.transport.upgrader import TransportUpgrader

from node.errors import Malformed
from node.p2p.connection import Connection, Handler, secured
from node.p2p.limits import (
    DIAL_SECONDS,
    HANDSHAKE_SECONDS,
    HANDSHAKES_BURST,
    HANDSHAKES_PER_SECOND,
    MAX_ADDRESSES,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MAX_CONNECTIONS_PER_PEER,
    MAX_UNKNOWN,
    MAX_UNKNOWN_PER_ADDRESS,
    Bucket,
)
from node.p2p.messages import Closed, Opened, Report
from node.p2p.streams import REFUSALS
from node.transport.addresses import is_public, subscriber

if TYPE_CHECKING:
    from trio_typing import TaskStatus

ACCEPT_PAUSE_SECONDS = 0.05  # when the process is out of file descriptors

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
    shaking: list[str] = field(default_factory=list)  # addresses of connections that are not secured yet
    rates: "OrderedDict[str, Bucket]" = field(default_factory=OrderedDict)  # of handshakes, by address
    refused: int = 0

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
            if self._full(address) or not self._rate(address).take():
                self.refused += 1
                await trio.aclose_forcefully(stream)
                continue
            self.shaking.append(address)
            self.nursery.start_soon(self._take, stream, address)

    def _full(self, address: str) -> bool:
        unknown = [c.address for c in self.connections if not c.admitted.is_set()] + self.shaking
        known = [c.address for c in self.connections] + self.shaking
        return (
            len(known) >= MAX_CONNECTIONS
            or known.count(address) >= MAX_CONNECTIONS_PER_ADDRESS
            or len(unknown) >= MAX_UNKNOWN
            or unknown.count(address) >= MAX_UNKNOWN_PER_ADDRESS
        )

    def _rate(self, address: str) -> Bucket:
        new = Bucket(HANDSHAKES_PER_SECOND, HANDSHAKES_BURST, trio.current_time)
        bucket = self.rates.setdefault(address, new)
        self.rates.move_to_end(address)
        if len(self.rates) > MAX_ADDRESSES:
            self.rates.popitem(last=False)
        return bucket

    async def _take(self, stream: trio.SocketStream, address: str) -> None:
        try:
            with trio.fail_after(HANDSHAKE_SECONDS):
                connection = await secured(self.upgrader, stream, address, None)
        except REFUSALS:
            await trio.aclose_forcefully(stream)
            return
        finally:
            self.shaking.remove(address)
        await self._keep(connection)

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
            if any(other.admitted.is_set() for other in same):
                connection.admit()
            if not same:
                await self.tell(Opened(connection.peer, connection.address, connection.dialled))
            await connection.serve(self.handler, task_status)
        except REFUSALS:
            pass  # which is this connection's end
        finally:
            self.connections.remove(connection)
            with trio.CancelScope(shield=True), trio.move_on_after(1.0):
                await connection.close()
                if not self._with(connection.peer):
                    await self.tell(Closed(connection.peer))

    def _with(self, peer: str) -> list[Connection]:
        return [connection for connection in self.connections if connection.peer == peer]

    def admit(self, peer: str) -> None:
        for connection in self._with(peer):
            connection.admit()

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
