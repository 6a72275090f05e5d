"""Accepting connections: so many of one address, so many in all, and no more than there are file descriptors for."""

import asyncio
import resource
import socket

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from node.crowd import Crowd
from node.ip import subscriber
from node.transport.limits import Limits
from node.transport.sending import DEADLINES, Deadlines, break_off

ACCEPT_PAUSE_SECONDS = 0.05  # when the process is out of file descriptors
OWN_DESCRIPTORS = 640  # left for everything else: 256 connections to peers, files being written, the chain, libraries
LEAST_CONNECTIONS = 16  # however few descriptors there are


class LimitedSite(web.BaseSite):
    """Accepts connections itself, because only here is a peer's address known before anything is held for it."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket, limits: Limits) -> None:
        super().__init__(runner)
        self._listener = listener
        self._crowd = Crowd(affordable(limits.connections), limits.connections_per_address)
        self._opened: dict[RequestHandler, str] = {}
        self._deadlines: Deadlines = runner.app[DEADLINES]
        self._accepting: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        self._accepting = asyncio.create_task(self._accept())

    async def stop(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self._listener.close()
        await super().stop()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            if peer:
                await self._take(connection, subscriber(str(peer[0])))
            else:
                connection.close()

    async def _take(self, connection: socket.socket, address: str) -> None:
        server = self._runner.server
        assert server is not None, "the runner was set up before this site was made"
        self._forget_closed()
        handler = server()
        if not self._crowd.enter(address, handler, lambda: self._end(handler)):
            connection.close()
            return
        self._opened[handler] = address
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: handler, connection)
        except OSError:  # the peer has gone already: some systems refuse to set options of its socket
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _forget_closed(self) -> None:
        for handler in [each for each in self._opened if each.transport is None]:
            self._crowd.leave(self._opened.pop(handler), handler)

    def _end(self, handler: RequestHandler) -> None:
        """Has a connection give way. Where an answer is on its way, that is broken off first, which closes it too: a
        socket must not be closed below a `sendfile`."""
        transport = handler.transport
        if transport is None:
            return
        if (deadline := self._deadlines.get(transport)) is not None:
            break_off(deadline)
        else:
            transport.abort()


def affordable(connections: int) -> int:
    """`connections`, or as many as there are file descriptors for: each may be sent a file. Raises the process's own
    limit as far as it may."""
    wanted = 2 * connections + OWN_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, max(LEAST_CONNECTIONS, (soft - OWN_DESCRIPTORS) // 2))
