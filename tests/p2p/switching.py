"""What a switch does with peers on loopback, in one trio program: `python -m tests.p2p.switching`, run by a test.

Prints what came of each scene as JSON. It is a process of its own because importing libp2p warns.
"""

import json
import os
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import trio
from libp2p.stream_muxer.yamux.yamux import FLAG_FIN, FLAG_SYN, TYPE_DATA, TYPE_PING, YAMUX_HEADER_FORMAT

from node.p2p.connection import Connection, make_upgrader, secured
from node.p2p.limits import MIB
from node.p2p.messages import ANSWERED, Opened, Report
from node.p2p.protocols import CONTENT, IDENTITY
from node.p2p.streams import LENGTH, REFUSALS
from node.p2p.switch import Switch

HELLO = b"\x13/multistream/1.0.0\n"
NO_ROOM = 1 << 60  # bytes, which no machine has


async def answer(peer: str, protocol: str, body: bytes) -> tuple[int, bytes]:
    if body == b"bug":
        raise TypeError("of ours")
    sizes = {b"huge": NO_ROOM, b"large": MIB}
    return ANSWERED, bytes(sizes[body]) if body in sizes else body


async def until(what: Callable[[], bool]) -> None:
    with trio.fail_after(5):
        while True:
            if what():
                return
            await trio.sleep(0.002)


async def nowhere(report: Report) -> None:
    return None


@asynccontextmanager
async def switch(tell: Callable[[Report], Awaitable[None]] = nowhere) -> AsyncIterator[tuple[Switch, int]]:
    """One that listens, and its port."""
    async with trio.open_nursery() as nursery:
        upgrader, peer = make_upgrader(os.urandom(32))
        made = Switch(upgrader, peer, True, tell, answer, nursery)
        listening = trio.socket.socket()
        await listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        made.listen(listening._sock)
        yield made, listening.getsockname()[1]
        nursery.cancel_scope.cancel()


async def greeted(port: int, source: str = "127.0.0.1") -> tuple[bool, trio.SocketStream]:
    """Whether a connection from `source` is taken: its handshake is begun then."""
    connection = trio.socket.socket()
    await connection.bind((source, 0))
    await connection.connect(("127.0.0.1", port))
    stream = trio.SocketStream(connection)
    try:
        await stream.send_all(HELLO)
        return await stream.receive_some(20) == HELLO, stream
    except trio.BrokenResourceError:
        return False, stream


async def knocking() -> dict[str, float]:
    """One address connects a hundred times, each time closing before the next."""
    async with switch() as (made, port):
        began, taken = trio.current_time(), 0
        for _ in range(100):
            taken += (met := await greeted(port))[0]
            await trio.aclose_forcefully(met[1])
            await until(lambda: not made.shaking)
        return {"taken": taken, "seconds": trio.current_time() - began}


async def crowding() -> dict[str, object]:
    """Four addresses take all places that there are for unknown ones; then a fifth comes."""
    async with switch() as (made, port):
        crowd = [await greeted(port, f"127.0.0.{2 + number // 16}") for number in range(64)]
        again, _ = await greeted(port, "127.0.0.2")
        fifth, _ = await greeted(port, "127.0.0.9")
        await until(lambda: len(made.shaking) <= 64)
        return {"taken": [met for met, _ in crowd].count(True), "seventeenth": again, "fifth": fifth,
                "unknown": len(made.shaking)}  # fmt: skip


async def competing() -> dict[str, object]:
    """All places for unknown ones are taken, of one address 15: it wants a sixteenth, as others have."""
    async with switch() as (made, port):
        owners = [2] * 16 + [3] * 16 + [4] * 16 + [5] * 15 + [6]
        crowd = [await greeted(port, f"127.0.0.{owner}") for owner in owners]
        more = [(await greeted(port, "127.0.0.5"))[0] for _ in range(3)]
        return {"taken": [met for met, _ in crowd].count(True), "more": more,
                "had": [made.unknown.of(f"127.0.0.{owner}") for owner in (2, 3, 4, 5, 6)],
                "open": sum(stream.socket.fileno() >= 0 for stream in made.shaking)}  # fmt: skip


async def listening_late() -> list[str]:
    """A connection ends while nobody has heard for longer than a second what its switch tells."""
    send, receive = trio.open_memory_channel[Report](1)
    async with switch() as (other, port), switch(send.send) as (made, _):
        await made.dial("127.0.0.1", port, other.peer)  # which is told: no more is
        await made.drop(other.peer)
        await trio.sleep(1.2)
        return [type(report).__name__ for report in [await receive.receive(), await _soon(receive)]]


async def _soon(receive: trio.MemoryReceiveChannel[Report]) -> Report | None:
    with trio.move_on_after(2):
        return await receive.receive()
    return None


async def overflowing() -> list[object]:
    """An answer for which there is no memory, then another one on the same connection."""
    async with switch() as (made, port), switch() as (asker, _):
        await _meet(made, port, asker, "a node")
        return [await _ask(asker, made.peer, CONTENT, body) for body in (b"huge", b"x")]


async def stumbling() -> list[object]:
    """What answers fails by a bug, when a peer asks."""
    found: list[object] = []
    try:
        async with switch() as (made, port), switch() as (asker, _):
            await _meet(made, port, asker, "a node")
            found.append(await _ask(asker, made.peer, CONTENT, b"bug"))
    except* TypeError:
        found.append("TypeError")
    return found


async def garbling() -> list[object]:
    """Thirty peers whose bytes are damaged, in the handshake and after it; then an honest one asks."""
    dice = random.Random(0)
    async with switch() as (made, port), switch() as (asker, _):
        await _meet(made, port, asker, "a node")
        for number in range(30):
            await _damaged(port, made.peer, dice, after_handshake=number % 2 == 0)
        return [await _ask(asker, made.peer, CONTENT, b"x")]


async def _damaged(port: int, peer: str, dice: random.Random, *, after_handshake: bool) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    try:
        with trio.move_on_after(1):
            if not after_handshake:
                await stream.send_all(HELLO + b"\x07/noise\n" + dice.randbytes(dice.randrange(400)))
                await stream.receive_some(100)
                return
            connection = await secured(make_upgrader(dice.randbytes(32))[0], stream, "127.0.0.1", peer)
            for _ in range(dice.randrange(30)):
                kind, flags, number = dice.randrange(5), dice.choice([0, 1, 2, 4, 8, 65535]), dice.randrange(6)
                body = dice.choice([HELLO, b"\x05\xff\xfe\xfd\xfc\n", b"\x80" * 12, dice.randbytes(20)])
                head = struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, number, len(body))
                await connection.guard.write(head + (body if kind == 0 else b""))
    except REFUSALS:
        pass
    finally:
        await trio.aclose_forcefully(stream)


async def _meet(made: Switch, port: int, asker: Switch, node: str) -> None:
    await asker.dial("127.0.0.1", port, made.peer)
    await until(lambda: asker.peer in {connection.peer for connection in made.connections})
    made.admit(asker.peer, node)
    asker.admit(made.peer, "another node")


async def _ask(asker: Switch, peer: str, protocol: str, body: bytes) -> int | None:
    try:
        return (await asker.ask(peer, protocol, body, 100, 5.0))[0]
    except REFUSALS:
        return None


async def coming_again() -> dict[str, object]:
    """A node asks 150 times, leaves, and asks 150 times more as another peer."""
    async with switch() as (made, port):
        began, statuses, frames = trio.current_time(), list[int | None](), list[object]()
        for _ in range(2):
            async with switch() as (asker, _):
                await _meet(made, port, asker, "a node")
                statuses += [await _ask(asker, made.peer, CONTENT, b"x") for _ in range(150)]
                frames += [connection.guard.frames for connection in made.connections if connection.node == "a node"]
        return {"answered": statuses.count(ANSWERED), "seconds": trio.current_time() - began,
                "one_bucket_of_frames": all(each is frames[0] for each in frames)}  # fmt: skip


async def hasty() -> list[int | None]:
    """Who hears of a peer asks it at once."""
    answers = list[int | None]()

    async def ask_at_once(report: Report) -> None:
        if isinstance(report, Opened):
            answers.append(await _ask(asker, report.peer, IDENTITY, b"me"))

    async with switch() as (made, port), switch(ask_at_once) as (asker, _):
        await asker.dial("127.0.0.1", port, made.peer)
    return answers


async def introducing() -> list[int | None]:
    """A peer says six times who it is, and is nobody."""
    async with switch() as (made, port), switch() as (asker, _):
        await asker.dial("127.0.0.1", port, made.peer)
        return [await _ask(asker, made.peer, IDENTITY, b"me") for _ in range(6)]


async def pinging() -> float:
    """Seconds that 250 frames of a peer take that does not say who it is."""
    async with switch() as (made, port), switch() as (asker, _):
        await asker.dial("127.0.0.1", port, made.peer)
        (connection,) = asker.connections
        began = trio.current_time()
        for number in range(250):
            await connection.muxed._write_frame(struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_PING, FLAG_SYN, 0, number))
        await _ask(asker, made.peer, IDENTITY, b"me")
        return trio.current_time() - began


async def hoarding() -> dict[str, object]:
    """A peer asks for as much as there is room for and takes none of it; then another one asks."""
    async with switch() as (made, port), switch() as (asker, _), trio.open_nursery() as nursery:
        made.untaken.most = 3 * MIB
        await _meet(made, port, asker, "a node that reads")
        upgrader, peer = make_upgrader(os.urandom(32))
        hoarder = await secured(upgrader, await trio.open_tcp_stream("127.0.0.1", port), "127.0.0.1", made.peer)
        await until(lambda: peer in {connection.peer for connection in made.connections})
        made.admit(peer, "a node that takes nothing")
        nursery.start_soon(_drained, hoarder.stream)
        for number in (1, 2, 3):
            await _ask_and_grant_nothing(hoarder, 2 * number + 1)
            await until(lambda number=number: len(made.untaken.answers) == number)  # type: ignore[misc]
        first, *others = made.untaken.answers
        status, answer = await asker.ask(made.peer, CONTENT, b"large", MIB, 4.0)
        await until(lambda: len(made.untaken.answers) == 2)
        found = {"status": status, "whole": len(answer) == MIB, "first_gone": [*made.untaken.answers] == others,
                 "given_up": first.cancelled_caught}  # fmt: skip
        nursery.cancel_scope.cancel()
        await hoarder.close()
    return found


async def _drained(stream: trio.SocketStream) -> None:
    """What TCP holds is taken: it is yamux's window that stays shut."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some():
            pass


async def _ask_and_grant_nothing(connection: Connection, stream: int) -> None:
    """Of the answer a window's size can be sent, 256 KiB."""
    body = HELLO + bytes([len(CONTENT) + 1]) + CONTENT.encode() + b"\n" + LENGTH.pack(5) + b"large"
    begin = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, FLAG_SYN, stream, len(body))
    end = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, FLAG_FIN, stream, 0)
    await connection.guard.write(begin + body + end)


SCENES: list[Callable[[], Awaitable[object]]] = [
    knocking, crowding, competing, listening_late, overflowing, stumbling, garbling, coming_again, hasty, introducing,
    pinging, hoarding,
]  # fmt: skip


async def main() -> None:
    found = dict[str, object]()
    for scene in SCENES:
        with trio.fail_after(30):
            found[scene.__name__] = await scene()
    print(json.dumps(found))


if __name__ == "__main__":
    trio.run(main)
