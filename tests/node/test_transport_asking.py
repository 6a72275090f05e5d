"""Asking other nodes through real sockets: what is never connected to, followed or read to its end."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from node.errors import Malformed
from node.transport import UNREACHABLE, Timeouts, read_limited, session
from tests.node.http_servers import ok, raw_server, serving


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_a_private_address_is_never_connected_to_when_a_name_leads_there(host: str) -> None:
    reached = []

    async def handler(request: web.Request) -> web.StreamResponse:
        reached.append(request.path)
        return web.Response()

    async with serving(handler) as base, session(allow_private=False) as http:
        with pytest.raises(UNREACHABLE, match=r"not public|not a canonical"):
            await http.get(base.replace("127.0.0.1", host))

    assert reached == []


async def test_a_name_is_resolved_and_reached_when_the_run_is_a_devnet() -> None:
    async with (
        serving(ok) as base,
        session(allow_private=True) as http,
        http.get(base.replace("127.0.0.1", "localhost")) as response,
    ):
        assert await read_limited(response, 2) == b"ok"


async def test_a_redirect_is_an_error_when_a_peer_sends_one() -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})

    async with serving(elsewhere) as base, session(allow_private=True) as http:
        with pytest.raises(aiohttp.ClientResponseError, match="redirects are not followed"):
            await http.get(base)


@pytest.mark.parametrize(("interim", "counts"), [(7, True), (8, False), (100_000, False)])
async def test_few_interim_answers_are_waited_through(interim: int, counts: bool) -> None:
    """Nobody else had a turn while they came, for eight seconds of 100 MB."""
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" * interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async with raw_server(answer, asyncio.StreamWriter.drain) as base, session(allow_private=True) as http:
        if counts:
            async with http.get(base) as response:
                assert await read_limited(response, 2) == b"ok"
        else:
            with pytest.raises(UNREACHABLE, match="interim"):
                await http.get(base)


async def test_a_proxy_of_the_environment_is_ignored_when_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with serving(ok) as base, session(allow_private=True) as http, http.get(base) as response:
        assert response.status == 200


async def test_a_body_is_refused_before_it_is_read_when_its_length_is_over_the_limit() -> None:
    async def nothing(writer: asyncio.StreamWriter) -> None:
        await writer.drain()

    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    async with raw_server(head, nothing) as base, session(allow_private=True) as http, http.get(base) as response:
        with pytest.raises(Malformed, match="99999999999"):
            await read_limited(response, 1000)


async def test_a_body_is_refused_when_it_never_ends() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with raw_server(head, endless) as base, session(allow_private=True) as http, http.get(base) as response:
        with pytest.raises(Malformed, match="over 100000 bytes"):
            await read_limited(response, 100_000)
    assert sent < 32 << 20  # what socket buffers hold, not what was offered


async def test_an_answer_is_given_up_when_nothing_more_comes() -> None:
    async def stall(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    quick = Timeouts(idle_seconds=0.1)
    async with (
        raw_server(head, stall) as base,
        session(allow_private=True, timeouts=quick) as http,
        http.get(base) as response,
    ):
        with pytest.raises(UNREACHABLE):
            await read_limited(response, 10)


async def test_an_answer_is_given_up_when_it_only_drips() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    quick = Timeouts(total_seconds=0.3)
    async with (
        raw_server(head, drip) as base,
        session(allow_private=True, timeouts=quick) as http,
        http.get(base) as response,
    ):
        with pytest.raises(UNREACHABLE):
            await read_limited(response, 1_000_000)


async def test_a_truncated_body_is_an_error_when_the_peer_closes() -> None:
    async def close(writer: asyncio.StreamWriter) -> None:
        await writer.drain()

    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    async with raw_server(head, close) as base, session(allow_private=True) as http, http.get(base) as response:
        with pytest.raises(UNREACHABLE):
            await read_limited(response, 10)


async def test_a_packed_body_stays_packed_when_a_peer_sends_a_bomb() -> None:
    async def bomb(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\x1f\x8bbomb", headers={"Content-Encoding": "gzip"})

    async with serving(bomb) as base, session(allow_private=True) as http, http.get(base) as response:
        assert await read_limited(response, 100) == b"\x1f\x8bbomb"
