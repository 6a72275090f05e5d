"""What every role of a run has: the chain, its record, the weights, the peers."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from ledger.base import Address, CheckpointPublished, Digest, Event, Ledger, Run
from ledger.errors import LedgerError, Unconfirmed, Unreachable
from ledger.messages import Domain
from node.bans import Bans
from node.clock import Clock
from node.config import Settings, StateFolder
from node.log import warn
from node.p2p.announcements import Announcement, NewVersion, Verdicts
from node.p2p.others import Alone, Others
from node.peers.client import PeerClient
from node.reading import Reader
from node.record import Record
from node.roles.askable import OutOfReach
from node.roles.chronicle import Chronicle
from node.roles.directory import core, core_urls, url_of, weight_holders
from node.roles.hearsay import Hearsay
from node.roles.streams import manifest_by_stream
from node.roles.versions import Versions
from node.roles.weights import Weights
from node.runspec import RunSpec
from node.shards.client import Downloader
from node.shards.patch_finding import Named
from node.shards.patch_index import PatchIndex
from node.shards.patching import Patching
from node.shards.selection import Selection
from node.shards.shelves import Shelves, Singles
from node.shards.store import CheckpointStore
from node.transport import Uplink
from node.transport.connections import Connections

LAG_SECONDS = 60.0  # of the endpoint that events are read from, behind the one that has the own transactions' receipts


@dataclass(slots=True)
class Member:
    """One key's part in one run."""

    ledger: Ledger
    run: Run
    spec: RunSpec
    record: Record
    settings: Settings
    state: StateFolder
    checkpoints: CheckpointStore
    connections: Connections
    bans: Bans
    peers: PeerClient
    clock: Clock
    uplink: Uplink = field(default_factory=Uplink)  # what is served and what is handed over share it
    singles: Singles = field(default_factory=Singles)  # rollout files, handed out by chunks
    reader: Reader = field(init=False)
    shelves: Shelves = field(init=False)  # all whose chunks others can have here
    downloader: Downloader = field(init=False)
    patching: Patching = field(init=False)
    versions: Versions = field(init=False)
    weights: Weights = field(init=False)
    others: Others = field(default_factory=lambda: Alone("not on yet"))  # by libp2p
    news: asyncio.Event = field(default_factory=asyncio.Event)  # somebody says that the chain has something new
    hearsay: Hearsay | None = None  # of who wants to hear what validators announce
    woken: float = float("-inf")  # when that was last believed, monotonic
    looked: float = float("-inf")  # when the chain was last read, monotonic
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    chronicle: Chronicle = field(init=False)

    def __post_init__(self) -> None:
        self.reader = Reader(self.ledger, self.record, self.clock)
        base = Digest(bytes.fromhex(self.spec.model.manifest_root))
        selection = Selection(random.Random(), self.clock.monotonic, self.bans)
        self.downloader = Downloader(
            self.checkpoints, self.connections, self.weight_urls, selection, self.clock, base=base, me=self.weight_url
        )
        index = PatchIndex(self.state.checkpoints / "patches")
        self.patching = Patching(self.downloader, index, self._named)
        self.versions = Versions(self.record, self.checkpoints)
        self.weights = Weights(
            self.versions, self.spec.model, self.patching, self.clock, self.settings.keep_versions,
            self.settings.poll_seconds, self._manifest_by_stream, self.wait, OutOfReach(self.settings.allow_private),
        )  # fmt: skip
        self.shelves = Shelves(self.singles)
        if self.settings.sharing.weights:
            self.shelves.put(self.checkpoints)
        self.chronicle = Chronicle(self.record, self.ledger.account, self.clock)

    @property
    def account(self) -> Address:
        return self.ledger.account

    @property
    def domain(self) -> Domain:
        """Of every message that validators of this run sign."""
        return Domain(self.ledger.chain_id, self.ledger.coordinator)

    def weight_urls(self) -> Sequence[str]:
        """Who may hold weights, of nodes that are not banned: where the chain says, then where live nodes say."""
        announced = chain(weight_holders(self.record, self.account), self.others.endpoints().items())
        return self.downloader.selection.of_nodes(announced)

    def weight_url(self) -> str | None:
        """This node among those of others; None where it serves no weights, or nobody can reach it."""
        return url_of(self.record, self.account) if self.settings.sharing.weights else None

    def _named(self) -> Named:
        trainer = url_of(self.record, self.run.params.trainer)
        return Named(core_urls(self.record, self.account), trainer, self.account in core(self.record))

    async def _manifest_by_stream(self, root: Digest) -> None:
        await manifest_by_stream(self.others, self.checkpoints, root)

    async def sync(self) -> list[Event]:
        """Reads the chain on; while no endpoint answers, nothing is new."""
        try:
            news = await self.reader.sync()
        except Unreachable as error:
            self.chronicle.lost(error)
            return []
        self.chronicle.read(news)
        self._pass_on(news)
        self.looked = self.clock.monotonic()
        return news

    def _pass_on(self, news: Sequence[Event]) -> None:
        """The trainer tells its peers of its versions, once the chain has them for everybody."""
        published = [each for each in news if isinstance(each, CheckpointPublished)]
        if published and self.account == self.run.params.trainer:
            self.others.announce(NewVersion(published[-1].version, published[-1].manifest_root))

    async def synced(self) -> None:
        """Reads the chain on, however long it takes until an endpoint answers."""
        while True:
            try:
                self.chronicle.read(await self.reader.sync())
            except Unreachable as error:
                self.chronicle.lost(error)
                await self.wait()
            else:
                return

    async def finish_earlier(self) -> None:
        """Waits for what a killed process sent, and reads the chain on to where it counts: looked at too early, the
        chain would have this one do it again."""
        block = await self._block_of_earlier()
        await self.synced()
        end = self.clock.monotonic() + LAG_SECONDS
        while self.record.next_block <= block and self.clock.monotonic() < end:
            await self.wait()
            await self.synced()

    async def _block_of_earlier(self) -> int:
        """By which all counts that an earlier process sent, once it is mined; 0 where that takes too long."""
        while True:
            try:
                return await self.ledger.finish_earlier()
            except Unconfirmed as error:
                warn("what an earlier process sent is not final yet", reason=error)
                return 0
            except Unreachable as error:
                self.chronicle.lost(error)
                await self.wait()

    async def look(self) -> None:
        """As `sync`, but not more often than this node looks anyway: for requests, which strangers make."""
        async with self.looking:
            if self.clock.monotonic() - self.looked >= self.settings.poll_seconds:
                with suppress(LedgerError):  # what ends the role is met, and said, by its own next look
                    await self.sync()

    async def wait(self) -> None:
        """Until the chain is to be looked at again: at once where peers say that it has a new version."""
        if isinstance(self.others, Alone) or self.clock.monotonic() - self.woken < self.settings.poll_seconds:
            await self.clock.sleep(self.settings.poll_seconds)
            return
        sleeping = asyncio.ensure_future(self.clock.sleep(self.settings.poll_seconds))
        told = asyncio.ensure_future(self.news.wait())
        try:
            await asyncio.wait((sleeping, told), return_when=asyncio.FIRST_COMPLETED)
            self.woken = self.clock.monotonic() if told.done() else self.woken
        finally:
            self.news.clear()
            sleeping.cancel()
            told.cancel()

    def told_of(self, said: Announcement) -> None:
        """A peer says that there is a new version, which is a reason to look and nothing more; or what validators
        signed, for who wants to hear that. What comes faster than it is taken is let go: it is asked for as well."""
        match said.news:
            case NewVersion(version, _) if self.record.latest is None or version > self.record.latest:
                self.news.set()
            case Verdicts() if self.hearsay is not None:
                self.hearsay.put(said, said.news)
