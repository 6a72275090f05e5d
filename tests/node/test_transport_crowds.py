"""Who opens as much as a node takes keeps nobody else out, and holds nothing for long; through real sockets."""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from node.transport import Limits, make_app, send_file, serve
from tests.roles.stage import until

BIG_BYTES = 64 << 20  # more than socket buffers take
ATTACKER, OTHER, NEWCOMER = "127.0.0.2", "127.0.0.3", "127.0.0.4"

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(folder: Path, limits: Limits, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Answers /small, holds /poll back, and sends /big."""
    (folder / "big").touch()
    os.truncate(folder / "big", BIG_BYTES)

    async def small(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    over = asyncio.Event()

    async def poll(_: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async def big(request: web.Request) -> web.StreamResponse:
        return await send_file(request, folder / "big")

    app = make_app(1000, limits)
    for path, handler in (("/small", small), ("/poll", poll), ("/big", big)):
        app.router.add_get(path, handler)
    runner, port = await serve(app, host, 0)
    try:
        yield port
    finally:
        over.set()
        await runner.cleanup()


async def opened(port: int, address: str, path: str | None = None, header: str = "") -> Pair:
    """A connection that asks for `path`, or says nothing."""
    pair = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), limit=1 << 16)
    if path is not None:
        pair[1].write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    await asyncio.sleep(0.02)  # it is accepted before the next one
    return pair


async def status(port: int, address: str, path: str = "/small", header: str = "") -> int:
    """0 where the connection is closed without an answer."""
    reader, writer = await opened(port, address, path, header)
    try:
        async with asyncio.timeout(5):
            return int((await reader.readline() or b"x 0").split()[1])
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()


async def is_open(pair: Pair) -> bool:
    try:
        async with asyncio.timeout(0.05):
            return bool(await pair[0].read(1))
    except TimeoutError:
        return True
    except ConnectionError:
        return False


async def is_cut_off(pair: Pair, seconds: float) -> float:
    """After how long the connection is closed, what it was sent being read at its end."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if pair[1].transport.get_extra_info("socket").fileno() == -1 or await _reset(pair):
            return time.monotonic() - began
        await asyncio.sleep(0.05)
    raise AssertionError("it is still open")


async def _reset(pair: Pair) -> bool:
    """Whether the peer has reset it: what waits in the buffers is left there."""
    plain = pair[1].transport.get_extra_info("socket")
    info = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return bool(struct.unpack_from("B", info)[0] != 1)  # TCP_ESTABLISHED


def open_files(path: Path) -> int:
    """How often this process has the file open."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += entry.readlink() == path
    return found


async def test_a_newcomer_is_answered_when_others_hold_every_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=6, connections_per_address=6)) as port:
        held = [await opened(port, ATTACKER) for _ in range(6)]
        assert await status(port, NEWCOMER) == 200
        assert [await is_open(each) for each in held] == [False, True, True, True, True, True]
        for _, writer in held:
            writer.transport.abort()


async def test_a_newcomer_is_answered_when_others_hold_every_request(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(requests=4, requests_per_address=4)) as port:
        held = [await opened(port, ATTACKER, "/poll") for _ in range(4)]
        assert await status(port, NEWCOMER) == 200
        assert [await is_open(each) for each in held] == [False, True, True, True]
        for _, writer in held:
            writer.transport.abort()


async def test_who_has_as_much_as_anybody_makes_nobody_give_way(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=4)) as port:
        held = [await opened(port, address) for address in (ATTACKER, ATTACKER, OTHER, OTHER)]
        assert await status(port, OTHER) == 0
        assert all([await is_open(each) for each in held])
        for _, writer in held:
            writer.transport.abort()


async def test_a_file_on_its_way_is_closed_when_its_reader_has_to_give_way(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=3)) as port:
        held = [await opened(port, ATTACKER, "/big") for _ in range(3)]
        await until(lambda: open_files(tmp_path / "big") == 3)
        assert await status(port, NEWCOMER) == 200
        await until(lambda: open_files(tmp_path / "big") == 2)
        assert await is_cut_off(held[0], 5) < 5
        for _, writer in held:
            writer.transport.abort()


async def test_a_reader_that_stalls_is_cut_off_and_one_that_is_slow_is_not(tmp_path: Path) -> None:
    limits = Limits(request_seconds=0.3, grace_seconds=0.5, least_bytes_per_second=16 << 20)
    async with serving(tmp_path, limits) as port:
        stalled = await opened(port, ATTACKER, "/big")
        reader, writer = await opened(port, OTHER, "/big")
        began, received = time.monotonic(), 0
        while received < BIG_BYTES:
            received += len(await reader.read(1 << 16))
            await asyncio.sleep(max(0.0, began + received / (40 << 20) - time.monotonic()))  # 40 MiB a second
        assert time.monotonic() - began > 1.2  # longer than any other request may take
        assert await is_cut_off(stalled, 5) < 5
        assert open_files(tmp_path / "big") == 0
        writer.transport.abort()
        stalled[1].transport.abort()


async def test_an_address_that_was_sent_much_waits_and_others_do_not(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(bytes_per_second=20e6, bytes_burst=1e6)) as port:
        assert await status(port, ATTACKER, "/big") == 200
        reader, writer = await opened(port, ATTACKER, "/small")
        assert (await reader.readline()).split()[1] == b"429"
        assert b"Retry-After: 4" in await reader.readuntil(b"\r\n\r\n")  # 67.1 - 1 MB at 20 MB/s
        assert await status(port, OTHER) == 200
        writer.transport.abort()


@pytest.mark.parametrize("value", ["bytes=0-1", "bytes=99999999999-", "bytes=-1", "lines=1", ",", ""])
async def test_a_range_is_refused_wherever_it_lies(tmp_path: Path, value: str) -> None:
    async with serving(tmp_path, Limits()) as port:
        assert await status(port, OTHER, "/big", f"Range: {value}\r\n") == 416


@pytest.mark.parametrize(
    "header",
    ["X: y\r\n" * 200, f"X: {'y' * 9000}\r\n", "X y\r\n", "X:\0y\r\n", "Content-Length: -1\r\n",
     "Content-Length: x\r\n", "Transfer-Encoding: odd\r\n", "Host: y\r\nHost: z\r\n", " folded\r\n"],
    ids=range(9),
)  # fmt: skip
async def test_odd_headers_are_refused_and_the_next_one_is_answered(tmp_path: Path, header: str) -> None:
    async with serving(tmp_path, Limits()) as port:
        assert await status(port, ATTACKER, "/small", header) in {400, 0} or header.startswith("Host")
        assert await status(port, OTHER) == 200


async def test_header_lines_that_drip_keep_no_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(idle_seconds=0.3)) as port:
        pair = await opened(port, ATTACKER)
        began = time.monotonic()
        pair[1].write(b"GET / HTTP/1.1\r\n")
        while await is_open(pair):
            pair[1].write(b"X: y\r\n")
            assert time.monotonic() - began < 5
        pair[1].transport.abort()


async def test_requests_that_are_sent_ahead_are_not_read_ahead(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits()) as port:
        _, writer = await opened(port, ATTACKER, "/poll")
        writer.write(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n" * 300_000)  # 10 MB
        await asyncio.sleep(0.3)
        assert writer.transport.get_write_buffer_size() > 3 << 20  # the rest fills socket buffers
        writer.transport.abort()


async def test_a_request_body_that_never_ends_is_read_for_seconds_at_most(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits()) as port:
        _, writer = await opened(port, ATTACKER)
        writer.write(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n")
        assert await status(port, OTHER) == 200
        writer.transport.abort()


async def test_connections_over_ipv6_are_counted_too(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections_per_address=2), host="::1") as port:
        pairs = [await asyncio.open_connection("::1", port) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert [await is_open(pair) for pair in pairs] == [True, True, False]
        for _, writer in pairs:
            writer.transport.abort()


def test_no_more_is_accepted_than_there_are_file_descriptors_for() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "from node.transport.listening import affordable\n"
        "print(affordable(1024), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    found = [
        subprocess.run([sys.executable, "-c", program.format(hard=hard)], capture_output=True, text=True, check=True)
        for hard in (256, 840, 4096)
    ]
    assert [each.stdout.split() for each in found] == [["16", "256"], ["100", "840"], ["1024", "2688"]]
