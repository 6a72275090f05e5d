"""How much of what peers send is in memory, whose it is, and for how long."""

import asyncio

import pytest
from aiohttp import web

from node.errors import Malformed
from node.peers.bodies import Busy, Late, Room, read_body
from node.transport import make_app, serve


def test_an_address_gets_a_quarter_of_the_room_and_all_together_the_whole() -> None:
    room = Room(100)
    with room.claimed("10.0.0.1") as first, room.claimed("10.0.0.1") as second:
        first.grow(15)
        second.grow(10)
        with pytest.raises(Busy):
            second.grow(1)
        for last in (2, 3, 4):
            room.grow(f"10.0.0.{last}", 25)
        with pytest.raises(Busy):
            room.grow("10.0.0.5", 1)
    assert dict(room.held) == {"10.0.0.2": 25, "10.0.0.3": 25, "10.0.0.4": 25}


async def test_a_body_is_dropped_when_it_does_not_arrive_in_time() -> None:
    room, ends = Room(1000), list[type[Exception]]()

    async def take(request: web.Request) -> web.Response:
        with room.claimed(request.remote) as claim:
            try:
                return web.Response(body=await read_body(request, 100, claim, seconds=0.1))
            except (Late, Malformed) as error:
                ends.append(type(error))
                return web.Response(status=408)

    app = make_app(1000)
    app.router.add_post("/", take)
    runner, port = await serve(app, "127.0.0.1", 0)
    for length in (100, 101):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + bytes(99))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
    await runner.cleanup()
    assert ends == [Late, Malformed]
    assert not room.held
