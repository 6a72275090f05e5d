"""Asking other nodes: hostile URLs, hostile names, hostile answers."""

from dataclasses import dataclass

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from ledger.base import MAX_URL_BYTES
from node.errors import Malformed
from node.ip import is_literal, is_public
from node.transport.dialing import Resolver, socket_factory

MAX_INTERIM = 8  # answers before the one that counts, and that one
READ_BUFFER_BYTES = 1 << 20  # of one connection; a 4 MiB chunk then takes few wake-ups

UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError)
"""What a request or `read_limited` may raise when a peer is down, slow, refused by address, or breaks off."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`idle` ends an answer of which nothing more comes, `total` one that only drips."""

    connect_seconds: float = 5.0
    idle_seconds: float = 20.0
    total_seconds: float = 120.0

    def client(self, wait_seconds: float = 0.0) -> aiohttp.ClientTimeout:
        """For one request whose first byte the peer may hold back for `wait_seconds` (a long poll)."""
        return aiohttp.ClientTimeout(
            total=self.total_seconds + wait_seconds,
            sock_connect=self.connect_seconds,
            sock_read=self.idle_seconds + wait_seconds,
        )


def vet_url(url: str, allow_private: bool) -> URL:
    """The base URL of a node's endpoint, without a trailing slash.

    A name is vetted only when a `session` connects to it; an address written out is vetted here already.

    Raises:
        Malformed: not http(s), no host, a user, query or fragment, over 256 bytes, or a private address.
    """
    shown = ascii(url[:MAX_URL_BYTES])
    if len(url.encode(errors="surrogatepass")) > MAX_URL_BYTES or not url.isprintable() or " " in url:
        raise Malformed(f"endpoint {shown}: over {MAX_URL_BYTES} bytes, or not printable")
    try:
        parsed = URL(url)
        host, port = parsed.host, parsed.port
    except ValueError as error:
        raise Malformed(f"endpoint {shown}: {error}") from error
    if parsed.scheme not in {"http", "https"} or not host or not port:
        raise Malformed(f"endpoint {shown}: not an http or https URL with a host")
    if parsed.user or parsed.password or parsed.raw_query_string or parsed.raw_fragment:
        raise Malformed(f"endpoint {shown}: user, query and fragment are not allowed")
    if not allow_private and is_literal(host) and not is_public(host):
        raise Malformed(f"endpoint {shown}: a private address; only --allow-private (devnets) permits it")
    return parsed.with_path(parsed.path.rstrip("/"))


def session(allow_private: bool, timeouts: Timeouts | None = None) -> aiohttp.ClientSession:
    """A session for peers; close it. Call it where an event loop runs.

    It follows no redirect, knows no cookie, proxy or netrc, unpacks nothing, and connects to public addresses only
    unless `allow_private`. Requests raise what `UNREACHABLE` lists.
    """
    connector = aiohttp.TCPConnector(
        resolver=Resolver(),
        socket_factory=socket_factory(allow_private),
        limit=256,
        limit_per_host=32,
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=(timeouts or Timeouts()).client(),
        headers={"Accept-Encoding": "identity", "User-Agent": "intellect-node"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        read_bufsize=READ_BUFFER_BYTES,
        middlewares=(_no_redirect,),
        response_class=_Answer,
    )


async def read_limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of `response`, at most `limit` bytes; of a longer one no more than a buffer beyond is ever held.

    Raises:
        Malformed: the body is longer; the connection is closed.
        aiohttp.ClientError, TimeoutError: it broke off.
    """
    if (response.content_length or 0) > limit:
        response.close()
        raise Malformed(f"{response.url.origin()}: body of {response.content_length} bytes, at most {limit} are read")
    pieces: list[bytes] = []
    left = limit
    async for piece in response.content.iter_any():
        left -= len(piece)
        if left < 0:
            response.close()
            raise Malformed(f"{response.url.origin()}: body over {limit} bytes")
        pieces.append(piece)
    return b"".join(pieces)


class _Answer(aiohttp.ClientResponse):
    """One before which few others come: of "100 Continue" aiohttp takes any number, and nobody else has a turn then."""

    async def start(self, connection: Connection) -> "_Answer":
        protocol = connection.protocol
        if protocol is None:
            raise aiohttp.ServerDisconnectedError
        read, left = protocol.read, iter(range(MAX_INTERIM))

        async def few() -> tuple[RawResponseMessage, StreamReader]:
            if next(left, None) is None:
                connection.close()
                raise aiohttp.ServerDisconnectedError("more interim answers than anybody needs")
            return await read()

        protocol.read = few  # type: ignore[method-assign]
        try:
            await super().start(connection)
        finally:
            del protocol.read
        return self


async def _no_redirect(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise aiohttp.ClientResponseError(
            response.request_info, response.history, status=response.status, message="redirects are not followed"
        )
    return response
