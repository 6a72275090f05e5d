"""What every role of a run has: the chain, its record, the weights, the peers."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path

from ledger.base import Address, CheckpointPublished, Digest, Event, Ledger, Run, Version
from ledger.errors import LedgerError, Unconfirmed, Unreachable
from ledger.messages import Domain
from node.bans import Bans
from node.clock import Clock
from node.config import Settings, StateFolder
from node.errors import Malformed, NodeError, NotFound, SpecMismatch, StoreError
from node.log import event, warn
from node.p2p.announcements import Announcement, NewVersion, Verdicts
from node.p2p.others import Alone, Others
from node.peers.client import PeerClient
from node.progress import Progress
from node.reading import Reader
from node.record import Record
from node.roles.base_model import require_model
from node.roles.chronicle import Chronicle
from node.roles.directory import core_urls, url_of, weight_holders
from node.roles.hearsay import Hearsay
from node.roles.pauses import put_off
from node.roles.streams import manifest_by_stream
from node.runspec import RunSpec
from node.shards.client import Downloader
from node.shards.patch_index import PatchIndex
from node.shards.patching import Patching
from node.shards.room import is_news
from node.shards.selection import Selection
from node.shards.shelves import Shelves, Singles
from node.shards.store import CheckpointStore
from node.transport import Uplink
from node.transport.connections import Connections

FIRST_PAUSE_SECONDS = 1.0  # before weights that could not be had are asked for again; doubled each time
MAX_PAUSE_SECONDS = 60.0
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
    wanted: set[Version] = field(default_factory=set)  # to be fetched beside the newest version
    refused: dict[Version, SpecMismatch] = field(default_factory=dict)  # never to be used here, and why
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
        self.patching = Patching(self.downloader, index, lambda: core_urls(self.record, self.account))
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

    def held(self, version: Version) -> Path | None:
        """The folder of `version`, if its every chunk is here."""
        root = self.record.root(version)
        return None if root is None else self.checkpoints.complete(root)

    async def weights(self, version: Version) -> Path:
        """The folder of `version`, fetched from peers if need be, its small files checked against the spec.

        Raises:
            NotFound: unpublished, or no peer has it now.
            SpecMismatch: what the trainer published is not a model of this run; it is asked for no more.
            StoreError: the disk is full or failed.
        """
        if version in self.refused:
            raise self.refused[version]
        try:
            folder = await asyncio.to_thread(self.held, version) or await self._fetch(version)
            await asyncio.to_thread(require_model, folder, self.spec.model)
        except (Malformed, SpecMismatch) as error:
            await asyncio.to_thread(self._require_intact, version)
            raise self.refuse(version, error) from error
        return folder

    def _require_intact(self, version: Version) -> None:
        """Raises: NotFound: what is wrong with the weights was this disk's doing; they are removed."""
        root = self.record.root(version)
        if root is not None and self.held(version) is not None and not self.checkpoints.recheck(root):
            raise NotFound(f"version {version} had changed on this disk and was removed")

    def refuse(self, version: Version, why: NodeError) -> SpecMismatch:
        """Has `version` passed over from now on, which is said once; the error to raise."""
        if version not in self.refused:
            self.refused[version] = SpecMismatch(f"version {version} is of no use here: {why}")
            warn("weights refused, going on with other versions", version=version, reason=why)
        return self.refused[version]

    async def _fetch(self, version: Version) -> Path:
        root = self.record.root(version)
        if root is None:
            raise NotFound(f"version {version} is not published")
        await self.evict()  # before: also what was begun and could never be had makes room
        lineage = [checkpoint.manifest_root for checkpoint in self.record.checkpoints[: version + 1]]
        with Progress("downloading", "bytes", self.clock, resumes=True, version=version) as progress:
            patched = await self.patching.bring(root, lineage)
            folder = await self._received(root, progress)
        moved = progress.summary(progress.moved + patched.moved_bytes)
        event("weights fetched", version=version, patches=patched.patches, **moved, root=root)
        return folder

    async def _received(self, root: Digest, progress: Progress) -> Path:
        try:
            return await self.downloader.fetch(root, progress)
        except NotFound:
            await manifest_by_stream(self.others, self.checkpoints, root)  # for the next try
            raise

    async def evict(self) -> None:
        """Deletes the weights that nobody needs: all but the newest versions, version 0, what is wanted, and what work
        goes on with. Of these, older versions go where the disk or the quota is full."""
        with put_off("old weights not deleted"):
            await asyncio.to_thread(self._evict)

    def _evict(self) -> None:
        newest = list(self._published())[: self.settings.keep_versions]
        in_use = self.newest_held()
        kept = {Version(0), *newest, *self.wanted, *(() if in_use is None else (in_use,))}
        roots = self._roots(kept)
        needed = {*newest[:1], *self.wanted, in_use}
        spare = self._roots(sorted(kept - needed, key=lambda version: (version == 0, version)))  # the oldest goes first
        self.checkpoints.keep({*roots, *self.patching.index.keep(set(roots))}, spare)

    def _roots(self, versions: Iterable[Version]) -> list[Digest]:
        return [root for version in versions if (root := self.record.root(version)) is not None]

    @asynccontextmanager
    async def following_weights(self) -> AsyncIterator[None]:
        """Fetches each newest version in the background while the block runs; an error that ends that ends the block.

        A node that fetches no weights any more must not look as if it worked.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow())
                yield
                following.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            for version in await self.listed(self._missing):
                try:
                    await self._fetch_while_useful(version)
                    pause = FIRST_PAUSE_SECONDS
                    break  # what is missing is another list now
                except SpecMismatch:
                    continue  # which was said
                except (NotFound, StoreError) as error:
                    if is_news(error):
                        warn("weights not had yet, trying again", version=version, reason=error, seconds=pause)
                    await self.clock.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
            await self.wait()

    async def listed(self, versions: Callable[[], list[Version]]) -> list[Version]:
        """What `versions`, which looks at the disk, says; nothing, after a while, where the disk refuses."""
        try:
            return await asyncio.to_thread(versions)
        except StoreError as error:
            warn("weights on this disk cannot be looked at, trying again", reason=error, seconds=MAX_PAUSE_SECONDS)
            await self.clock.sleep(MAX_PAUSE_SECONDS)
            return []

    async def _fetch_while_useful(self, version: Version) -> None:
        """As `weights`, but given up when the run has gone past `version`: the line is for newer ones then."""
        fetching = asyncio.ensure_future(self.weights(version))
        try:
            while not fetching.done() and version in await asyncio.to_thread(self._useful):
                await asyncio.wait([fetching], timeout=self.settings.poll_seconds)
            if fetching.done():
                await fetching
            else:
                event("download dropped, the run has gone past it", version=version)
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    def _missing(self) -> list[Version]:
        """Versions to fetch."""
        return [version for version in self._useful() if version not in self.refused and self.held(version) is None]

    def _useful(self) -> list[Version]:
        """Those newer than what is here, the newest first, and then those that are wanted."""
        return [*self._newer(), *sorted(self.wanted)]

    def _newer(self) -> Iterator[Version]:
        """The latest version, and before it those that work could go on with, down to one that is here."""
        for version in self._published():
            if version != self.record.latest and not self.record.is_open(version):
                return
            yield version
            if self._usable(version):
                return

    def _published(self) -> Iterator[Version]:
        """Every version, the newest first."""
        return map(Version, reversed(range(len(self.record.checkpoints))))

    def _usable(self, version: Version) -> bool:
        return version not in self.refused and self.held(version) is not None

    def newest_held(self) -> Version | None:
        """The newest open version whose weights are here, and of use."""
        open_versions = takewhile(self.record.is_open, self._published())
        return next(filter(self._usable, open_versions), None)

    def has_other(self, version: Version) -> bool:
        """Whether there is another open version that may be of use, here or elsewhere."""
        open_versions = takewhile(self.record.is_open, self._published())
        return any(other != version and other not in self.refused for other in open_versions)

    def to_start_with(self) -> list[Version]:
        """Versions of any of which tokenizer and template will do: those here, the newest first; then others."""
        published = [version for version in self._published() if version not in self.refused]
        here = [version for version in published if self.held(version) is not None]
        return list(dict.fromkeys([*here, *published[:1], *published[-1:]]))
