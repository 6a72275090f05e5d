"""A run's members for tests: keys, a record that says who belongs, and networks over a wire in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest
from ledger.messages import Domain
from node.bans import Bans
from node.clock import SystemClock
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.announcements import News, Scope
from node.p2p.content import Content, Kind, Piece, PieceSource
from node.p2p.fetching import SILENT_SECONDS
from node.p2p.identity import make_statement
from node.p2p.keys import public_key_of
from node.p2p.link import Link, MemoryLink, Wire
from node.p2p.myself import Chain, Myself
from node.p2p.network import Network
from node.p2p.protocols import IDENTITY
from node.transport import session

STAKING = Domain(31337, Address("0x" + "11" * 20))
SCOPE = Scope(Domain(31337, Address("0x" + "22" * 20)), 1)
BLOCK_TIME = 1_700_000_000
PATIENCE_SECONDS = 20.0
FILE = Digest(b"\x07" * 32)
DATA = bytes(range(256)) * 10_000  # 2.56 MB: five pieces


def account(number: int) -> LocalAccount:
    made: LocalAccount = Account.from_key(number.to_bytes(32, "big"))
    return made


def secret(number: int) -> bytes:
    return number.to_bytes(32, "little")


def peer_of(number: int) -> str:
    return peer_id(public_key_of(secret(number)))


def wanted(limit: int = len(DATA)) -> Content:
    """`DATA` by the name of `FILE`."""
    return Content(Kind.FILE, FILE, limit, _require_data)


def _require_data(data: bytes) -> None:
    if data != DATA:
        raise Malformed("other bytes")


async def until(what: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if what():
                return
            await asyncio.sleep(0.01)


@dataclass
class Registry:
    """Who belongs to the run, where they announced to be, and who is named as a bootstrap peer."""

    members: set[Address] = field(default_factory=set)
    endpoints: dict[Address, str] = field(default_factory=dict)
    bootstrap: list[PeerAddress] = field(default_factory=list)
    time: int = BLOCK_TIME

    def chain(self) -> Chain:
        return Chain(
            belongs=self.members.__contains__,
            endpoint_of=self.endpoints.get,
            core=lambda: list(self.bootstrap),
            nodes=lambda: [],
            is_open=lambda _: True,
            keeps=lambda _, who: who in self.members,
            time=lambda: self.time,
        )


@dataclass
class GivenPieces:
    """Content by digest, of which a piece takes so many seconds; and how many were asked for."""

    content: dict[Digest, bytes] = field(default_factory=dict)
    seconds: float = 0.0
    asked: int = 0
    turns: list[tuple[Address, int]] = field(default_factory=list)

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        data = self.content.get(wanted.digest)
        if data is None or wanted.offset >= len(data):
            raise NotFound("not here")
        return len(data), data[wanted.offset : wanted.offset + wanted.length]

    async def turn(self, asker: Address, size: int) -> None:
        self.turns.append((asker, size))


@dataclass
class SilentPieces:
    """Takes every question and answers none, but for content that it is given later."""

    asked: int = 0
    content: dict[Digest, bytes] = field(default_factory=dict)

    async def piece(self, asker: Address, wanted: Piece) -> tuple[int, bytes]:
        self.asked += 1
        if wanted.digest not in self.content:
            await asyncio.Event().wait()
        return len(self.content[wanted.digest]), self.content[wanted.digest]

    async def turn(self, asker: Address, size: int) -> None:
        return None


@dataclass
class Town:
    """Networks over one wire in memory, all of one run."""

    registry: Registry
    wire: Wire
    stack: AsyncExitStack
    http: aiohttp.ClientSession
    nodes: list[Network] = field(default_factory=list)
    heard: dict[str, list[News]] = field(default_factory=dict)

    async def node(
        self,
        number: int,
        held: PieceSource | None = None,
        *,
        inbound: bool = True,
        member: bool = True,
        silent_seconds: float = SILENT_SECONDS,
        bans: Bans | None = None,
        **options: object,
    ) -> Network:
        where = {"host": "127.0.0.1" if inbound else None} | options
        myself = Myself(account(number), secret(number), **where)  # type: ignore[arg-type]
        if member:
            self.registry.members.add(myself.address)
        link = self.wire.link(myself.peer, inbound=inbound)
        network = self.network(link, myself, held or GivenPieces(), bans or Bans(), silent_seconds)
        link.listen(network)
        self.run(network)
        return network

    def network(
        self, link: Link, myself: Myself, held: PieceSource, bans: Bans, silent_seconds: float = SILENT_SECONDS
    ) -> Network:
        """What a node has over `link`; nothing of it runs."""
        heard = self.heard.setdefault(myself.peer, [])
        return Network(
            link=link,
            myself=myself,
            scope=SCOPE,
            staking=STAKING,
            chain=self.registry.chain(),
            pieces=held,
            clock=SystemClock(),
            session=self.http,
            heard=lambda said: heard.append(said.news),
            bans=bans,
            silent_seconds=silent_seconds,
        )

    def run(self, network: Network) -> None:
        """Until the town is left."""
        self.stack.push_async_callback(_end, asyncio.create_task(network.run()))
        self.nodes.append(network)

    def address(self, one: Network | MemoryLink) -> PeerAddress:
        """Where a network, or who is on the wire by a link of its own, is dialled."""
        return PeerAddress("127.0.0.1", 1, one.peer)


async def come(place: Town, at: Network, peer: int, node: int) -> str:
    """Peer number `peer` says to `at` that it is node number `node`'s."""
    place.registry.members.add(Address(account(node).address))
    statement = make_statement(account(node), STAKING, peer_of(peer), BLOCK_TIME)
    await at.asked(peer_of(peer), IDENTITY, statement.encode())
    return peer_of(peer)


async def ended(tasks: "Sequence[asyncio.Task[None] | asyncio.Task[bytes]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def town() -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(session(allow_private=True))
        yield Town(Registry(), Wire(), stack, http)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
