"""Bodies received into place, through real sockets: what is kept open, given up, refused."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from yarl import URL

from node.errors import Malformed
from node.transport import Timeouts
from node.transport.connections import Connections
from tests.node.http_servers import raw_server, serving

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with Connections(allow_private=True, timeouts=Timeouts(idle_seconds=0.5, total_seconds=2.0)) as opened:
        yield opened


@asynccontextmanager
async def speaker(speak: Speak) -> AsyncIterator[tuple[URL, list[int]]]:
    """A server that does `speak` with every connection, and how many there were."""
    met: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(len(met))
        try:
            await speak(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"), met
    finally:
        server.close()


def saying(*pieces: bytes, times: int = 1000, then_wait: bool = False) -> Speak:
    """Sends `pieces`, one after the other, for each of so many requests."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
        if then_wait:
            await reader.read()

    return speak


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def test_a_body_lies_in_the_callers_buffer_when_it_came(connections: Connections) -> None:
    body = bytes(range(256)) * 16384

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.path_qs == "/a%20b?wait=3"
        assert "Accept-Encoding" in request.headers
        return web.Response(body=body)

    room = bytearray(len(body) + 3)
    async with serving(handler) as base:
        answer = await connections.get(URL(base) / "a b" % {"wait": "3"}, memoryview(room))

    assert (answer.status, answer.body) == (200, body)
    assert room == body + bytes(3)
    assert answer.seconds > 0


@pytest.mark.parametrize("cut", range(1, len(HELLO), 7))
async def test_an_answer_is_read_when_it_comes_in_pieces(cut: int, connections: Connections) -> None:
    async with speaker(saying(HELLO[:cut], HELLO[cut:])) as (url, met):
        for _ in range(2):
            answer = await connections.get(url, memoryview(bytearray(5)), exact=True)
            assert answer.body == b"hello"
    assert len(met) == 1


async def test_a_connection_is_used_again_and_another_is_made_when_it_has_gone(connections: Connections) -> None:
    async with speaker(saying(HELLO, times=2)) as (url, met):
        for _ in range(5):
            assert (await connections.get(url, memoryview(bytearray(5)))).body == b"hello"
            await asyncio.sleep(0.02)
    assert len(met) == 3


async def test_connections_to_those_that_have_gone_do_not_stand_in_the_way_of_others(connections: Connections) -> None:
    for _ in range(70):
        async with speaker(saying(HELLO, times=1)) as (url, _):
            await connections.get(url, memoryview(bytearray(5)))

    async with speaker(saying(HELLO)) as (url, met):
        for _ in range(3):
            await connections.get(url, memoryview(bytearray(5)))
    assert len(met) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"hello",
    ],
    ids=["too long", "more than announced", "no length", "in chunks", "long head", "no HTTP"],
)
async def test_an_answer_is_malformed_when_it_is_not_what_fits(said: bytes, connections: Connections) -> None:
    async with speaker(saying(said + b"\r\n\r\n")) as (url, _):
        with pytest.raises(Malformed):
            await connections.get(url, memoryview(bytearray(5)))


async def test_an_answer_is_malformed_when_it_is_short_and_must_be_exact(connections: Connections) -> None:
    async with speaker(saying(HELLO)) as (url, _):
        assert (await connections.get(url, memoryview(bytearray(6)))).body == b"hello"
        with pytest.raises(Malformed, match="a body of 5 bytes where 6 were expected"):
            await connections.get(url, memoryview(bytearray(6)), exact=True)


async def test_a_connection_that_speaks_unasked_is_not_used_again(connections: Connections) -> None:
    async with speaker(saying(HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")) as (url, met):
        for _ in range(3):
            assert (await connections.get(url, memoryview(bytearray(5)))).body == b"hello"
            await asyncio.sleep(0.05)
    assert len(met) == 3


async def test_a_redirect_is_an_answer_like_any_other(connections: Connections) -> None:
    said = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with speaker(saying(said)) as (url, _):
        answer = await connections.get(url, memoryview(bytearray(5)))
    assert (answer.status, bytes(answer.body)) == (302, b"")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2", HELLO[:-1]], ids=["nothing", "half a head", "half a body"])
async def test_a_request_times_out_when_nothing_more_comes(said: bytes, connections: Connections) -> None:
    async with speaker(saying(said, then_wait=True, times=1)) as (url, _):
        with pytest.raises(TimeoutError, match=r"nothing came for 0\.5 s"):
            await connections.get(url, memoryview(bytearray(5)))


async def test_a_request_times_out_when_the_body_only_drips(connections: Connections) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        for _ in range(60):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", drip) as base:
        async with asyncio.timeout(4):
            with pytest.raises(TimeoutError):
                await connections.get(URL(base), memoryview(bytearray(1000)))


async def test_a_long_poll_is_waited_for_when_it_was_asked_for(connections: Connections) -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.8)
        writer.write(HELLO)
        await writer.drain()
        await reader.read()

    async with speaker(late) as (url, _):
        answer = await connections.get(url, memoryview(bytearray(5)), wait_seconds=5)
    assert answer.body == b"hello"
    assert answer.seconds < 0.5  # that it held the answer back does not count


async def test_nothing_is_written_to_the_buffer_when_the_request_was_given_up(connections: Connections) -> None:
    begun = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO[:-4])
        begun.set()
        await asyncio.sleep(0.1)
        writer.write(HELLO[-4:])
        await writer.drain()

    room = bytearray(5)
    async with speaker(slow) as (url, _):
        asked = asyncio.create_task(connections.get(url, memoryview(room)))
        await begun.wait()
        await asyncio.sleep(0.02)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.sleep(0.15)

    assert room[1:] == bytes(4)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_private_address_is_not_connected_to_when_the_run_is_no_devnet(host: str) -> None:
    async with speaker(saying(HELLO)) as (url, met), Connections(allow_private=False) as public:
        with pytest.raises(OSError, match=r"cannot connect to .*not public"):
            await public.get(url.with_host(host.strip("[]")), memoryview(bytearray(5)))
    assert met == []


async def test_an_error_names_host_and_port_when_nobody_listens(connections: Connections) -> None:
    with pytest.raises(OSError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await connections.get(URL("http://127.0.0.1:1/"), memoryview(bytearray(5)))


async def test_a_peer_is_not_believed_over_tls_when_its_certificate_is_its_own(connections: Connections) -> None:
    async with speaker(saying(HELLO)) as (url, _):
        with pytest.raises((ssl.SSLError, OSError)):
            await connections.get(url.with_scheme("https").with_port(url.port), memoryview(bytearray(5)))
