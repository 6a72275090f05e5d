"""HTTP between nodes, through real sockets."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.transport import UNREACHABLE, Limits, Timeouts, make_app, problem, read_limited, serve, session, vet_url
from node.transport.addresses import is_public, subscriber
from node.transport.limits import MAX_REMEMBERED, Gate, TooMany

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, limits: Limits | None = None, max_body: int = 1000) -> AsyncIterator[str]:
    app = make_app(max_body, limits)
    app.router.add_route("GET", "/{path:.*}", handler)
    app.router.add_route("POST", "/{path:.*}", handler)
    runner, port = await serve(app, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer: bytes, then: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        try:
            await then(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def ok(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


# --- Addresses and URLs


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "2001:db8::1", "x", "",
    ],
)  # fmt: skip
def test_an_address_is_refused_when_it_is_not_on_the_public_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_is_public_when_the_internet_routes_it(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.org", "example.org", "//example.org", "http://", "http:///x", "",
        "http://user:pw@example.org", "http://user@example.org", "http://example.org?x=1", "http://example.org#x",
        "http://example.org:0", "http://example.org:99999", "http://example.org:x", "http://exa mple.org",
        "http://example.org/\r\nX: y", "http://[::1", "http://127.0.0.1:80", "http://[::1]:80", "http://[fe80::1]",
        "http://169.254.169.254/latest", "http://" + "a" * 250 + ".org", "http://\ud800.org", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_an_endpoint_is_refused_when_it_is_hostile(url: str) -> None:
    with pytest.raises(Malformed):
        vet_url(url, allow_private=False)


@pytest.mark.parametrize(
    ("url", "chunk"),
    [
        ("http://example.org", "http://example.org/v1/x"),
        ("https://example.org:8443/", "https://example.org:8443/v1/x"),
        ("http://8.8.8.8:80/node/", "http://8.8.8.8/node/v1/x"),
        ("http://[2606:4700::1111]:81", "http://[2606:4700::1111]:81/v1/x"),
    ],
)
def test_an_endpoint_is_a_base_for_paths_when_it_is_vetted(url: str, chunk: str) -> None:
    assert str(vet_url(url, allow_private=False) / "v1" / "x") == chunk


def test_a_private_address_is_vetted_when_the_run_is_a_devnet() -> None:
    assert str(vet_url("http://127.0.0.1:1234/", allow_private=True)) == "http://127.0.0.1:1234"


@given(st.text(max_size=300))
@settings(deadline=None, max_examples=200)
def test_vetting_ends_in_a_url_or_malformed_when_given_any_text(text: str) -> None:
    try:
        vetted = vet_url(text, allow_private=False)
    except Malformed:
        return
    assert vetted.scheme in {"http", "https"}
    assert vetted.host


# --- Asking


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


# --- Answering


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


def test_a_bucket_refills_when_time_passes() -> None:
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
    assert len(gate._tokens) == MAX_REMEMBERED
    assert not gate._active


def test_one_subscriber_is_counted_when_it_uses_many_ipv6_addresses() -> None:
    assert subscriber("2606:4700::1") == subscriber("2606:4700::ffff:1") == "2606:4700::"
    assert subscriber("::ffff:8.8.8.8") == subscriber("8.8.8.8") == "8.8.8.8"


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
