"""What a node uploads stays within its limit, shared among those who ask, through real sockets."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from node.transport import Uplink, make_app, send_file, serve
from node.transport.places import Places
from node.transport.uplink import CATCH_UP_SECONDS, PIECE_SECONDS
from tests.roles.stage import until

FILE_BYTES = 4 << 20


class Reader:
    """A connection from an address of this machine's own that asks for the file again and again."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.port, self.address, self.received, self.files = port, address, 0, 0

    async def read(self) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(self.address, 0), limit=1 << 17
        )
        try:
            while True:
                writer.write(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                left = FILE_BYTES
                while left:
                    piece = await reader.read(min(left, 1 << 17))
                    assert piece
                    left -= len(piece)
                    self.received += len(piece)
                self.files += 1
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving_file(folder: Path, uplink: Uplink) -> AsyncIterator[int]:
    (folder / "file").write_bytes(bytes(FILE_BYTES))

    async def file(request: web.Request) -> web.StreamResponse:
        return await send_file(request, folder / "file")

    async def small(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    app = make_app(1000, uplink=uplink)
    app.router.add_get("/file", file)
    app.router.add_get("/small", small)
    runner, port = await serve(app, "127.0.0.1", 0)
    try:
        yield port
    finally:
        await runner.cleanup()


@asynccontextmanager
async def reading(*readers: Reader) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reader.read()) for reader in readers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def moments(seconds: float) -> list[float]:
    """How long each of the next ones took, of a hundredth of a second: some are long where others use the machine."""
    times = [time.monotonic()]
    while times[-1] < times[0] + seconds:
        await asyncio.sleep(0.01)
        times.append(time.monotonic())
    return [later - earlier for earlier, later in pairwise(times)]


def owed_seconds(took: list[float]) -> float:
    """Of how many the uplink has to make use: no more than a moment is made up for."""
    return sum(min(each, CATCH_UP_SECONDS) for each in took)


@pytest.mark.parametrize(("rate", "count"), [(4_000_000, 3), (60_000_000, 8)])
async def test_all_connections_together_get_what_the_limit_permits(tmp_path: Path, rate: int, count: int) -> None:
    began = time.monotonic()
    async with serving_file(tmp_path, Uplink(rate)) as port:
        readers = [Reader(port) for _ in range(count)]
        async with reading(*readers):
            owed = owed_seconds(await moments(1.2))
            counts = [reader.received for reader in readers]

    most = rate * (time.monotonic() - began + CATCH_UP_SECONDS + PIECE_SECONDS)
    assert 0.96 * rate * owed < sum(counts) < most
    assert min(counts) > 0.8 * sum(counts) / count


async def test_an_address_gets_no_more_for_many_connections_than_another_for_one(tmp_path: Path) -> None:
    rate = 1e6
    async with serving_file(tmp_path, Uplink(rate, Places(20))) as port:
        many = [Reader(port, "127.0.0.2") for _ in range(9)]
        one = Reader(port, "127.0.0.3")
        async with reading(*many, one):
            await asyncio.sleep(1.2)
            theirs = sum(each.received for each in many)

    assert 0.6 < one.received / theirs < 1.7  # and not a ninth of it, as by connections


async def test_a_small_answer_waits_for_no_file(tmp_path: Path) -> None:
    async with serving_file(tmp_path, Uplink(1_000_000)) as port, reading(*(Reader(port) for _ in range(30))):
        await asyncio.sleep(0.2)
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        writer.close()
    assert time.monotonic() - began < 3  # the first of these files takes 42 s


def test_as_many_files_are_sent_at_once_as_have_100_kb_a_second_each() -> None:
    assert [Uplink(rate).places.most for rate in (None, 1.0, 299_999, 500_000)] == [None, 2, 2, 5]


async def test_only_so_many_files_are_sent_at_once_as_get_on_and_others_are_told_to_go_elsewhere(
    tmp_path: Path,
) -> None:
    async with (
        serving_file(tmp_path, Uplink(500_000, Places(5, place_seconds=0.2))) as port,
        reading(*(readers := [Reader(port) for _ in range(5)])),
    ):
        await until(lambda: all(reader.received for reader in readers))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"Retry-After: 1" in answer


async def test_readers_that_take_nothing_hold_no_place(tmp_path: Path) -> None:
    uplink = Uplink(1e9, Places(4, stall_seconds=0.2))
    big = 64 << 20  # more than socket buffers take
    async with serving_file(tmp_path, uplink) as port:
        (tmp_path / "file").write_bytes(bytes(big))
        stalled = []
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), limit=1)
            writer.write(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
            stalled.append(writer)
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"HTTP/1.1 200 OK\r\n"
        for each in (*stalled, writer):
            each.transport.abort()


async def test_nothing_is_held_back_when_there_is_no_limit(tmp_path: Path) -> None:
    async with serving_file(tmp_path, Uplink()) as port, reading(reader := Reader(port)):
        owed = owed_seconds(await moments(0.3))
    assert reader.received > 100e6 * owed


async def test_what_is_no_file_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    async with serving_file(tmp_path, Uplink()) as port, aiohttp.ClientSession() as session:
        (tmp_path / "file").unlink()
        os.mkfifo(tmp_path / "file")
        async with session.get(f"http://127.0.0.1:{port}/file") as answer:
            assert answer.status == 503


async def test_who_gave_up_waiting_is_passed_over() -> None:
    uplink, began = Uplink(1_000_000), time.monotonic()
    await uplink.turn("a", 200_000)  # 0.1 s may be made up for, so 0.1 s are left
    waiting = [asyncio.create_task(uplink.turn(address, 10_000)) for address in ("a", "b", "c")]
    await asyncio.sleep(0)
    waiting[1].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(waiting[0], waiting[2])
    assert time.monotonic() - began > 0.1
