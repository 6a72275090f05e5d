"""A run's members for tests: keys, a record that says who belongs, and networks over a wire in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest
from ledger.messages import Domain
from node.clock import SystemClock
from node.errors import NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.announcements import News, Scope
from node.p2p.content import Piece, PieceSource
from node.p2p.link import Wire
from node.p2p.myself import Chain, Myself
from node.p2p.network import Network
from node.shards.bans import Bans
from node.transport import session

STAKING = Domain(31337, Address("0x" + "11" * 20))
SCOPE = Scope(Domain(31337, Address("0x" + "22" * 20)), 1)
BLOCK_TIME = 1_700_000_000
PATIENCE_SECONDS = 20.0


def account(number: int) -> LocalAccount:
    made: LocalAccount = Account.from_key(number.to_bytes(32, "big"))
    return made


def secret(number: int) -> bytes:
    return number.to_bytes(32, "little")


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
            time=lambda: self.time,
        )


class Holding:
    """Given content, and how many pieces of it were asked for."""

    def __init__(self, **files: bytes) -> None:
        self.content: dict[Digest, bytes] = {Digest(bytes.fromhex(name[1:])): data for name, data in files.items()}
        self.asked = 0
        self.turns: list[int] = []

    async def piece(self, wanted: Piece) -> tuple[int, bytes]:
        self.asked += 1
        data = self.content.get(wanted.digest)
        if data is None or wanted.offset >= len(data):
            raise NotFound("not here")
        return len(data), data[wanted.offset : wanted.offset + wanted.length]

    async def turn(self, size: int) -> None:
        self.turns.append(size)


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
        **options: object,
    ) -> Network:
        who = account(number)
        if member:
            self.registry.members.add(Address(who.address))
        where = {"host": "127.0.0.1" if inbound else None} | options
        myself = Myself(who, secret(number), **where)  # type: ignore[arg-type]
        heard = self.heard.setdefault(myself.peer, [])
        link = self.wire.link(myself.peer, inbound=inbound)
        network = Network(
            link=link,
            myself=myself,
            scope=SCOPE,
            staking=STAKING,
            chain=self.registry.chain(),
            pieces=held or Holding(),
            clock=SystemClock(),
            session=self.http,
            heard=lambda said: heard.append(said.news),
            bans=Bans(),
        )
        link.listen(network)
        task = asyncio.create_task(network.run())
        self.stack.push_async_callback(_end, task)
        self.nodes.append(network)
        return network

    def address(self, network: Network) -> PeerAddress:
        return PeerAddress("127.0.0.1", 1, network.peer)


@asynccontextmanager
async def town() -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(session(allow_private=True))
        yield Town(Registry(), Wire(), stack, http)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
