"""Answering through real sockets: errors as problems, and limits that hold against many and slow ones."""

import asyncio
import gzip
import json
import socket
import time

import aiohttp
import pytest
from aiohttp import web

from node.buckets import MAX_REMEMBERED
from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.transport import Limits, make_app, problem, read_limited, serve, session
from node.transport.limits import Gate, TooMany
from tests.node.http_servers import ok, serving


async def problem_of(response: aiohttp.ClientResponse) -> tuple[int, str]:
    assert response.content_type == "application/problem+json"
    body = json.loads(await read_limited(response, 10_000))
    assert body["type"] == "about:blank"
    assert body["status"] == response.status
    return response.status, body["detail"]


@pytest.mark.parametrize(
    ("raised", "status"), [(Malformed("odd"), 400), (NotFound("none here"), 404), (StoreError("disk full"), 503)]
)
async def test_an_error_is_a_problem_when_a_handler_raises_it(raised: Exception, status: int) -> None:
    async def fails(request: web.Request) -> web.StreamResponse:
        raise raised

    async with serving(fails) as base, session(allow_private=True) as http, http.get(base) as response:
        assert await problem_of(response) == (status, str(raised))


async def test_a_path_or_method_is_a_problem_when_there_is_no_such() -> None:
    app = make_app(10)
    app.router.add_get("/there", ok, allow_head=False)
    runner, port = await serve(app, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{port}"
    async with session(allow_private=True) as http:
        async with http.get(f"{base}/x") as response:
            assert (await problem_of(response))[0] == 404
        async with http.post(f"{base}/there") as response:
            assert (await problem_of(response))[0] == 405
            assert response.headers["Allow"] == "GET"
    await runner.cleanup()


async def test_a_body_is_refused_when_it_is_over_the_limit() -> None:
    async def takes(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    async with serving(takes, max_body=1000) as base, session(allow_private=True) as http:
        async with http.post(base, data=b"x" * 1000) as response:
            assert await read_limited(response, 10) == b"1000"
        async with http.post(base, data=b"x" * 1001) as response:
            assert (await problem_of(response))[0] == 413


async def test_a_long_detail_is_cut_when_a_problem_is_made() -> None:
    body = problem(400, "Bad Request", "x" * 10_000).body
    assert isinstance(body, bytes)
    assert json.loads(body)["detail"] == "x" * 500


async def test_requests_are_refused_when_they_come_faster_than_the_burst() -> None:
    limits = Limits(requests_per_second=0.1, burst=3)
    async with serving(ok, limits) as base, session(allow_private=True) as http:
        statuses = []
        for _ in range(4):
            async with http.get(base) as response:
                statuses.append(response.status)
        assert statuses == [200, 200, 200, 429]
        assert 1 <= int(response.headers["Retry-After"]) <= 10


async def test_requests_are_refused_when_too_many_wait_at_once() -> None:
    release = asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        if request.path == "/wait":
            await release.wait()
        return web.Response()

    async with serving(waits, Limits(requests_per_address=2)) as base, session(allow_private=True) as http:
        held = [asyncio.create_task(http.get(f"{base}/wait")) for _ in range(2)]
        async with asyncio.timeout(5):
            while True:
                async with http.get(base) as response:
                    if response.status == 429:
                        break
        release.set()
        assert [each.status for each in await asyncio.gather(*held)] == [200, 200]
        async with http.get(base) as response:
            assert response.status == 200


def test_an_address_is_let_in_again_when_time_passes() -> None:
    now = 0.0
    gate = Gate(Limits(requests_per_second=2, burst=1), lambda: now)

    def passes() -> bool:
        try:
            with gate.request("a"):
                return True
        except TooMany:
            return False

    assert (passes(), passes()) == (True, False)
    now = 0.5
    assert (passes(), passes()) == (True, False)


def test_few_addresses_are_remembered_when_many_come() -> None:
    gate = Gate(Limits())
    for number in range(MAX_REMEMBERED + 100):
        with gate.request(str(number)):
            pass
        gate.charge(str(number), 1)
    assert len(gate._requests.buckets) == len(gate._bytes.buckets) == MAX_REMEMBERED
    assert len(gate._active) == 0


def idle_connection(base: str) -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setblocking(False)
    return connection


async def closed_within(connection: socket.socket, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while await loop.sock_recv(connection, 1 << 16):
                pass
            return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n"])
async def test_a_connection_is_closed_when_its_request_never_comes_whole(sent: bytes) -> None:
    async with serving(ok, Limits(idle_seconds=0.2)) as base:
        with idle_connection(base) as connection:
            connection.send(sent)
            assert await closed_within(connection, 5)


async def test_others_are_answered_when_a_hundred_connections_say_nothing() -> None:
    async with serving(ok) as base, session(allow_private=True) as http:
        held = [idle_connection(base) for _ in range(100)]
        async with http.get(base) as response:
            assert response.status == 200
        for each in held:
            each.close()


async def test_a_connection_is_closed_at_once_when_its_address_has_too_many() -> None:
    async with serving(ok, Limits(connections_per_address=2)) as base:
        with idle_connection(base) as first, idle_connection(base) as second, idle_connection(base) as third:
            assert await closed_within(third, 5)
            assert not await closed_within(first, 0.05)
            assert not await closed_within(second, 0.05)


async def test_a_reader_is_cut_off_when_it_does_not_read() -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * (24 << 20))

    async with serving(large, Limits(request_seconds=1.0)) as base, session(allow_private=True) as http:
        with idle_connection(base) as connection:
            connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            started = time.monotonic()
            async with http.get(base) as response:
                assert len(await read_limited(response, 24 << 20)) == 24 << 20
            await asyncio.sleep(max(0.0, 1.3 - (time.monotonic() - started)))
            assert await closed_within(connection, 5)


async def test_a_sender_is_cut_off_when_its_body_never_comes() -> None:
    async def takes(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    async with serving(takes, Limits(request_seconds=0.2)) as base:
        with idle_connection(base) as connection:
            connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
            assert await closed_within(connection, 5)


async def test_listening_is_a_config_error_when_the_port_is_taken() -> None:
    async with serving(ok) as base:
        with pytest.raises(ConfigError, match="cannot listen"):
            await serve(make_app(10), "127.0.0.1", int(base.rsplit(":", 1)[1]))


async def test_the_port_is_free_again_when_the_runner_is_cleaned_up() -> None:
    runner, port = await serve(make_app(10), "127.0.0.1", 0)
    await runner.cleanup()
    again, same = await serve(make_app(10), "127.0.0.1", port)
    await again.cleanup()
    assert same == port


async def sent(base: str, request: bytes) -> bytes:
    """The first line of what comes back for `request`."""
    host, port = base.removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
)
async def test_what_is_no_http_fills_no_log(request_bytes: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ok) as base:
        for _ in range(20):
            await sent(base, request_bytes)

    assert len(caplog.records) <= 1


async def test_a_compressed_body_is_not_unpacked() -> None:
    async def takes(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    packed = gzip.compress(bytes(50_000_000))
    async with (
        serving(takes, max_body=len(packed)) as base,
        session(allow_private=True) as http,
        http.post(base, data=packed, headers={"Content-Encoding": "gzip"}) as response,
    ):
        assert await read_limited(response, 10) == str(len(packed)).encode()
