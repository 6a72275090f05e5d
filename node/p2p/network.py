"""A node among its peers: who is connected and identified, what is announced, what is fetched from whom."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from ledger.base import Address, Digest
from ledger.messages import Domain
from node.bans import Bans
from node.clock import Clock
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.announcements import Announcement, Heartbeat, News, NewVersion, Scope, Verdicts, announce
from node.p2p.book import Book
from node.p2p.content import Content, PieceSource
from node.p2p.fetching import SILENT_SECONDS, Fetcher
from node.p2p.gossip import Gossip, split
from node.p2p.identity import Identities
from node.p2p.introductions import Introductions
from node.p2p.link import Link
from node.p2p.myself import Chain, Myself
from node.p2p.named import Named
from node.p2p.protocols import IDENTITY, PEERS, REACH
from node.p2p.reach import Prober, Reach, reached, tell
from node.p2p.seeking import Seeker
from node.p2p.service import MAX_TOLD_BYTES, Service

HEARTBEAT_SECONDS: Final = 60.0
TENDING_SECONDS: Final = 2.0  # between two looks at what is due
REACH_SECONDS, UNREACHED_SECONDS = 600.0, 60.0  # between two questions whether this node is reached; where it is not
COUNTED: Final = ("heard", "invalid", "strange", "dropped")  # of announcements, for `status`


@dataclass(slots=True)
class Network:
    """`Others` by libp2p, and the `Listener` that its link is to run with."""

    link: Link
    myself: Myself
    scope: Scope
    staking: Domain
    chain: Chain
    pieces: PieceSource
    clock: Clock
    session: aiohttp.ClientSession
    heard: Callable[[Announcement], None]  # of a version, or of verdicts
    bans: Bans
    wall: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.Random)
    silent_seconds: float = SILENT_SECONDS  # of a holder of content
    owners: dict[str, Address] = field(default_factory=dict)  # of identified peers, by peer id
    reach: Reach = field(default_factory=Reach)
    identities: Identities = field(init=False)
    gossip: Gossip = field(init=False)
    book: Book = field(init=False)
    fetcher: Fetcher = field(init=False)
    named: Named = field(init=False)
    seeker: Seeker = field(init=False)
    service: Service = field(init=False)
    introductions: Introductions = field(init=False)
    _heartbeat: bytes = b""
    _asking: set["asyncio.Task[None]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        link, owners, clock, rng = self.link, self.owners, self.clock, self.rng
        self.identities = identities = Identities(self.staking, self.chain.belongs, self.chain.time)
        self.book = Book(self.wall, self.chain.is_open, self.chain.keeps)
        self.fetcher = Fetcher(
            link=link, owners=owners, book=self.book, bans=self.bans, rng=rng, silent_seconds=self.silent_seconds
        )
        self.gossip = Gossip(
            link=link, scope=self.scope, identities=identities, hear=self._hear, clock=clock, wall=self.wall, rng=rng
        )
        self.named = Named(link, self.myself.bootstrap)
        self.seeker = Seeker(
            link=link, me=self.peer, known=owners, bootstrap=self._bootstrap, others=self._others,
            failed=self.named.failed, clock=clock, rng=rng,
        )  # fmt: skip
        self.introductions = Introductions(
            link=link,
            myself=self.myself,
            staking=self.staking,
            identities=identities,
            owners=owners,
            bootstrap=self._bootstrap,
            admitted=self._admitted,
            met=self._met,
        )
        prober = Prober(self.session, self.chain.endpoint_of, clock)
        self.service = Service(
            link=link, owners=owners, book=self.book, gossip=self.gossip, pieces=self.pieces, prober=prober, clock=clock
        )

    @property
    def peer(self) -> str:
        return self.myself.peer

    def _bootstrap(self) -> Iterable[PeerAddress]:
        return (*self.myself.bootstrap, *self.chain.core())

    def _others(self) -> Iterable[PeerAddress]:
        return (*self.book.addresses(), *self.chain.nodes())

    # --- While it runs

    async def run(self) -> None:
        """Keeps connections, heartbeats and what is known up to date; runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.seeker.run())
                tasks.create_task(self._tend())
        finally:
            self.gossip.close()
            self.introductions.close()
            for task in self._asking:
                task.cancel()

    async def _tend(self) -> None:
        beaten = looked = float("-inf")
        listening = self.link.address
        while True:
            now = self.clock.monotonic()
            self._forget()
            if now - beaten >= HEARTBEAT_SECONDS or self.link.address != listening:
                beaten, listening = now, self.link.address
                self.beat()
            pause = REACH_SECONDS if self.reach.answer else UNREACHED_SECONDS
            if self.myself.endpoint and self.owners and now - looked >= pause:
                looked = now
                await self._look_from_outside()
            await self.clock.sleep(TENDING_SECONDS)

    def _forget(self) -> None:
        """Leaves who has no part in the run any more."""
        self.book.forget(self.chain.belongs)
        for peer in [peer for peer, node in self.owners.items() if not self.chain.belongs(node)]:
            self.link.drop(peer)

    def beat(self) -> None:
        """Tells everybody that this node is there, and where."""
        listening, host = self.link.address, self.myself.host
        here = () if listening is None or host is None else (PeerAddress(host, listening.port, self.peer),)
        try:
            self._heartbeat = self._announced(Heartbeat(self.myself.endpoint, here))
        except Malformed:  # a host that is no name of libp2p's, such as one with an underscore
            self._heartbeat = self._announced(Heartbeat(self.myself.endpoint, ()))
        self.gossip.publish(self._heartbeat)

    async def _look_from_outside(self) -> None:
        peers = [(peer, node) for peer, node in self.owners.items() if node != self.myself.address]
        found = await reached(peers, lambda peer: self.link.ask(peer, REACH, b"", limit=1), self.wall(), self.rng)
        if found.answer is None:
            return
        if found.answer != self.reach.answer:
            tell(found, self.myself.endpoint)
        self.reach = found

    # --- Peers come and go

    def ready(self) -> None:
        self.seeker.wake.set()

    def opened(self, peer: str, dialled: bool) -> None:
        """Whoever dialled says first who it is."""
        if dialled:
            self.introductions.begin(peer)

    def closed(self, peer: str) -> None:
        if self.owners.pop(peer, None) is not None:
            self.gossip.remove(peer)
            self.seeker.wake.set()

    def lost(self) -> None:
        for peer in list(self.owners):
            self.closed(peer)

    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        """The answer to `peer`. Raises: Malformed, NotFound, StoreError: it is refused."""
        if protocol == IDENTITY:
            return self.introductions.answer(peer, body)
        return await self.service.answer(peer, protocol, body)

    def _admitted(self, peer: str) -> None:
        self.seeker.succeeded(peer)
        self.named.met(peer)
        self.gossip.add(peer, self.owners[peer], self._heartbeat)

    def _met(self, peer: str) -> None:
        """Who was dialled is asked whom it knows."""
        task = asyncio.create_task(self._learn(peer))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _learn(self, peer: str) -> None:
        with suppress(NotFound, Malformed):
            for data in split(await self.link.ask(peer, PEERS, b"", limit=MAX_TOLD_BYTES)):
                with suppress(Malformed):
                    self.gossip.take(data)

    # --- Others

    def announce(self, news: News) -> None:
        """Tells everybody. Raises: Malformed: it is over what an announcement may have."""
        self.gossip.publish(self._announced(news))

    def _announced(self, news: News) -> bytes:
        return announce(news, self.scope, self.myself.secret, self.introductions.statement(), int(self.wall() * 1000))

    def _hear(self, message: Announcement) -> None:
        if not self.book.add(message):
            return
        match message.news:
            case NewVersion() | Verdicts():
                self.heard(message)
            case Heartbeat():
                self.seeker.wake.set()

    def endpoints(self) -> dict[Address, str]:
        return {node: url for node, url in self.book.endpoints().items() if node != self.myself.address}

    def holders(self, commitment: Digest) -> tuple[Address, ...]:
        return self.book.holders(commitment)

    def having(self, root: Digest) -> tuple[Address, ...]:
        return tuple(node for node in self.book.having(root) if node != self.myself.address)

    async def fetch(self, content: Content, nodes: Sequence[Address]) -> bytes:
        return await self.fetcher.fetch(content, nodes)

    def standing(self) -> dict[str, Any]:
        listening = self.link.address
        return {
            "on": listening is not None,
            "peer_id": self.peer,
            "port": None if listening is None else listening.port,
            "peers": [{"peer_id": peer, "node": node} for peer, node in self.owners.items()],
            "announced": bool(self.myself.endpoint),
            "reachable": self.reach.answer,
            "reachable_by": list(self.reach.by),
            "reachable_at": None if self.reach.at is None else int(self.reach.at),
            "announcements": {name: getattr(self.gossip.counts, name) for name in COUNTED},
        }
