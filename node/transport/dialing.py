"""Making the socket to a peer: its name resolved, its addresses vetted, the first that answers.

Addresses are looked at where the socket is made, after resolution, so that a name cannot be shown to a check and then
resolve to something else.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import aiohappyeyeballs
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from node.ip import is_public

RESOLVER_THREADS = 4
NEXT_ADDRESS_SECONDS = 0.25  # before the next address is tried beside one that is silent (RFC 8305, section 8)

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]


def socket_factory(allow_private: bool) -> Callable[[AddressInfo], socket.socket]:
    """Makes sockets for resolved addresses; for private ones only if that is permitted. Raises: PermissionError."""
    return _any_socket if allow_private else _public_socket


class Resolver(AbstractResolver):
    """getaddrinfo in threads of its own: names that never resolve must not hold the threads that write files."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")

    async def look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[AddressInfo]:
        """Every address of `host`. Raises: OSError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, lambda: list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))
            )
        except UnicodeError as error:  # an empty or overlong label: no OSError, so callers would not expect it
            raise OSError(errno.EINVAL, f"{host[:80]!a} is no name: {error}") from error

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=where,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for where, _, protocol, _, address in await self.look_up(host, port, family)
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Dialer:
    """Connects to vetted URLs; close it."""

    def __init__(self, allow_private: bool) -> None:
        self._resolver = Resolver()
        self._make_socket = socket_factory(allow_private)

    async def dial(self, url: URL) -> socket.socket:
        """A connected socket that does not block. Raises: OSError, with host and port in its words."""
        host, port = url.raw_host or "", url.port or 0
        try:
            found = await self._resolver.look_up(host, port, socket.AF_UNSPEC)
            return await aiohappyeyeballs.start_connection(
                found, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1, socket_factory=self._make_socket
            )
        except OSError as error:
            raise ConnectionError(f"cannot connect to {host[:80]}:{port}: {error.strerror or error}") from error

    async def close(self) -> None:
        await self._resolver.close()


def _any_socket(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


def _public_socket(info: AddressInfo) -> socket.socket:
    address = str(info[4][0])
    if not is_public(address):
        raise PermissionError(errno.EACCES, f"{address} is not public; only --allow-private (devnets) permits it")
    return _any_socket(info)
