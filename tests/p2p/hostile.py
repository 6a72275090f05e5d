"""Peers as no honest one is: `python -m tests.p2p.hostile CONDUCT HOST PORT PEER [WORDS]`, run by `test_hostile_peers`.

Each says on standard output what came of it.
"""

import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable

import trio
from libp2p.crypto.ed25519 import Ed25519PublicKey, create_new_key_pair
from libp2p.crypto.keys import KeyPair
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.security.secio import transport as secio
from libp2p.stream_muxer.yamux.yamux import FLAG_SYN, TYPE_DATA, TYPE_WINDOW_UPDATE, YAMUX_HEADER_FORMAT, Yamux
from libp2p.transport.upgrader import TransportUpgrader

from node.p2p.connection import Connection, make_upgrader, secured
from node.p2p.guard import ExactStream
from node.p2p.protocols import CONTENT, IDENTITY
from node.p2p.streams import LENGTH, REFUSALS, exchange

Conduct = Callable[[str, int, str, list[str]], Awaitable[None]]


async def connect(host: str, port: int, peer: str) -> Connection:
    stream = await trio.open_tcp_stream(host, port)
    upgrader, _ = make_upgrader(os.urandom(32))
    return await secured(upgrader, stream, "127.0.0.1", peer)


async def introduced(connection: Connection) -> None:
    """The test's node admits whoever says anything."""
    stream = await connection.muxed.open_stream()
    await exchange(stream, IDENTITY, b"me", 1 << 20)


async def plaintext(host: str, port: int, peer: str, words: list[str]) -> None:
    """Offers to prove nothing, as the peer whose public key everybody knows."""
    key = Ed25519PublicKey.from_bytes(bytes.fromhex(words[0]))
    pair = KeyPair(create_new_key_pair().private_key, key)
    offers = {PLAINTEXT_PROTOCOL_ID: InsecureTransport(pair), secio.ID: secio.Transport(create_new_key_pair())}
    for protocol, transport in offers.items():
        stream = await trio.open_tcp_stream(host, port)
        raw = RawConnection(ExactStream(stream), initiator=True)
        try:
            with trio.fail_after(5):
                upgrader = TransportUpgrader({protocol: transport}, {})
                await upgrader.upgrade_security(raw, True, ID.from_base58(peer))
            print("accepted", protocol)
        except REFUSALS:
            print("refused", protocol)


async def flood(host: str, port: int, peer: str, words: list[str]) -> None:
    """Fills a stream that nobody reads, whatever window was granted."""
    connection = await connect(host, port, peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_quietly, connection.muxed)
        await connection.muxed.event_started.wait()
        if words[0] == "introduced":
            await introduced(connection)
        sent = 0
        try:
            await connection.muxed._write_frame(
                struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_WINDOW_UPDATE, FLAG_SYN, 99, 0)
            )
            for _ in range(300 * 16):
                frame = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, 0, 99, 65_000) + bytes(65_000)
                await connection.muxed._write_frame(frame)
                sent += 65_000
        except REFUSALS:
            pass
        print("sent", sent)
        nursery.cancel_scope.cancel()


def _frame(kind: int, flags: int, length: int) -> bytes:
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, 99, length)


async def stall(host: str, port: int, peer: str, words: list[str]) -> None:
    """Asks for large answers and reads nothing any more."""
    connection = await connect(host, port, peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_quietly, connection.muxed)
        await connection.muxed.event_started.wait()
        await introduced(connection)
        for _ in range(7):  # of eight places, one may still be the introduction's
            stream = await connection.muxed.open_stream()
            nursery.start_soon(_ask_and_read_nothing, stream)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()  # from here on not a byte is read
    print("stalled", flush=True)
    await trio.sleep(60)


async def _ask_and_read_nothing(stream: object) -> None:
    from libp2p.protocol_muxer.multiselect_client import MultiselectClient
    from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator

    await MultiselectClient().select_one_of([CONTENT], MultiselectCommunicator(stream))
    await stream.write(LENGTH.pack(5) + b"large")  # type: ignore[attr-defined]
    await stream.close()  # type: ignore[attr-defined]
    await trio.sleep_forever()


async def vanish(host: str, port: int, peer: str, words: list[str]) -> None:
    """Is gone in the middle of a request."""
    connection = await connect(host, port, peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_quietly, connection.muxed)
        await connection.muxed.event_started.wait()
        await introduced(connection)
        stream = await connection.muxed.open_stream()
        await stream.write(b"\x13/multistream/1.0.0\n")
        print("going", flush=True)
        os._exit(0)


async def oversize(host: str, port: int, peer: str, words: list[str]) -> None:
    """Announces a request of four gigabytes."""
    connection = await connect(host, port, peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_quietly, connection.muxed)
        await connection.muxed.event_started.wait()
        await introduced(connection)
        stream = await connection.muxed.open_stream()
        try:
            await stream.write(b"\x13/multistream/1.0.0\n")
            await stream.write(bytes([len(CONTENT) + 1]) + CONTENT.encode() + b"\n")
            await stream.write(LENGTH.pack(2**32 - 1) + bytes(1000))
            with trio.fail_after(10):
                while True:
                    await stream.read(100)
        except REFUSALS as error:
            print("ended", type(error).__name__)
        nursery.cancel_scope.cancel()


async def crowd(host: str, port: int, peer: str, words: list[str]) -> None:
    """Opens a thousand connections and says nothing."""
    sockets = [socket.create_connection((host, port)) for _ in range(1000)]
    await trio.sleep(2)
    alive = 0
    for each in sockets:
        each.setblocking(False)
        try:
            alive += each.recv(1) != b""
        except BlockingIOError:
            alive += 1
        except OSError:
            continue
    print("alive", alive, flush=True)
    await trio.sleep(60)


async def _quietly(muxed: Yamux) -> None:
    try:
        await muxed.start()
    except REFUSALS:
        return


CONDUCTS: dict[str, Conduct] = {each.__name__: each for each in (plaintext, flood, stall, vanish, oversize, crowd)}

if __name__ == "__main__":
    trio.run(CONDUCTS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])
