"""A node behind a slow line, by real libp2p processes: what it sends passes a proxy that lets so much a second pass."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node.bans import Bans
from node.errors import NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.content import Content, PieceSource
from node.p2p.limits import MAX_BODY_BYTES
from node.p2p.link import ASK_SECONDS
from node.p2p.listening import listening
from node.p2p.myself import Myself
from node.p2p.network import Network
from node.p2p.protocols import CONTENT, FORWARD
from node.p2p.sidecar import Sidecar
from tests.p2p.parts import GivenPieces, Town, account, ended, secret, until

START_SECONDS = 60.0
READ_BYTES = 16 << 10
BUFFER_BYTES = 64 << 10  # as a modem has


@dataclass
class SlowLine:
    """What a node sends, all its connections together, at `rate` bytes a second; each way takes `delay` seconds."""

    rate: float
    delay: float = 0.0
    passed: int = 0  # bytes
    _free: float = 0.0  # when it is, by the loop's clock

    async def up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            now = asyncio.get_running_loop().time()
            self._free = max(now, self._free) + len(data) / self.rate
            await asyncio.sleep(self._free - now)
            self.passed += len(data)
            self._later(writer, data)

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            self._later(writer, data)

    def _later(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self.delay, writer.write, data)

    @asynccontextmanager
    async def to(self, address: PeerAddress) -> AsyncIterator[PeerAddress]:
        """Where the node dials, to reach `address` over this line."""

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there_writer = await asyncio.open_connection(address.host, address.port)
            ways = [
                asyncio.create_task(way) for way in (self.up(reader, there_writer), self.down(there_reader, writer))
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                writer.close()
                there_writer.close()

        server = await asyncio.start_server(carry, "127.0.0.1", 0, limit=BUFFER_BYTES // 2)
        async with server:
            yield PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1], address.peer)


@dataclass
class CountingLink:
    """A sidecar's, and what came over it of content."""

    sidecar: Sidecar
    came: list[int] = field(default_factory=list)  # bytes, by piece
    slowest: float = 0.0  # seconds of one piece

    @property
    def address(self) -> PeerAddress | None:
        return self.sidecar.address

    async def dial(self, address: PeerAddress) -> None:
        await self.sidecar.dial(address)

    async def ask(
        self, peer: str, protocol: str, body: bytes, limit: int = MAX_BODY_BYTES, seconds: float = ASK_SECONDS
    ) -> bytes:
        began = asyncio.get_running_loop().time()
        answer = await self.sidecar.ask(peer, protocol, body, limit, seconds)
        if protocol in (CONTENT, FORWARD):
            self.came.append(len(answer))
            self.slowest = max(self.slowest, asyncio.get_running_loop().time() - began)
        return answer

    def admit(self, peer: str, node: str) -> None:
        self.sidecar.admit(peer, node)

    def drop(self, peer: str) -> None:
        self.sidecar.drop(peer)


@dataclass
class Behind:
    """One node with a file, behind a slow line, and those that ask for it, each with its `counts`."""

    line: SlowLine
    worker: Network
    askers: list[Network]
    counts: list[CountingLink]
    files: list[int]  # that came whole, of each

    async def fetch(self, content: Content, seconds: float) -> None:
        """All ask for it again and again, for so long."""
        tasks = [asyncio.create_task(self._fetch(number, content)) for number in range(len(self.askers))]
        await asyncio.wait(tasks, timeout=seconds)
        await ended(tasks)

    async def _fetch(self, number: int, content: Content) -> None:
        while True:
            try:
                await self.askers[number].fetch(content, [self.worker.myself.address])
                self.files[number] += 1
            except NotFound:
                await asyncio.sleep(1)


@asynccontextmanager
async def behind(
    place: Town, folder: Path, line: SlowLine, held: PieceSource, askers: int, *, relays: int = 1
) -> AsyncIterator[Behind]:
    """A worker that reaches relays, over `line`, and `askers` that reach one each; without relays it reaches those."""
    async with AsyncExitStack() as stack:

        async def node(number: int, held: PieceSource, *bootstrap: PeerAddress) -> Network:
            return await stack.enter_async_context(by_process(place, number, folder, held, bootstrap))

        between = [await node(1 + n, GivenPieces()) for n in range(relays)]
        known = [[_address(between[n % relays])] if relays else [] for n in range(askers)]
        each = [await node(60 + n, GivenPieces(), *known[n]) for n in range(askers)]
        near = between or each
        worker = await node(50, held, *[await stack.enter_async_context(line.to(_address(one))) for one in near])
        await until(lambda: all(one.peer in worker.owners and worker.peer in one.owners for one in near))
        await until(lambda: all(one.book.peers_of([worker.myself.address]) and one.owners for one in each))
        counts = [one.link for one in each if isinstance(one.link, CountingLink)]
        yield Behind(line, worker, each, counts, [0] * askers)


def _address(one: Network) -> PeerAddress:
    address = one.link.address
    assert address is not None
    return address


@asynccontextmanager
async def by_process(
    place: Town, number: int, folder: Path, held: PieceSource, bootstrap: Sequence[PeerAddress]
) -> AsyncIterator[Network]:
    """A node of its own libp2p process, which dials `bootstrap` and tells nobody where it listens."""
    with listening("127.0.0.1", 0, True, secret(number)) as socket:
        sidecar = Sidecar(socket, folder / f"{number}.log")
        myself = Myself(account(number), socket.secret, bootstrap=tuple(bootstrap))
        place.registry.members.add(myself.address)
        network = place.network(CountingLink(sidecar), myself, held, Bans())
        async with sidecar.running(network):
            await until(lambda: sidecar.address is not None, START_SECONDS)
            place.run(network)
            yield network
