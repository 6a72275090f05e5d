"""A role among its peers by libp2p: beside the chain's record and HTTP, never in their place.

Whatever libp2p does, or whether it is there at all, a role goes on: what fails here is said, and is all that fails.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest
from ledger.messages import Domain
from node.errors import Malformed, NotFound, StoreError
from node.files import write_atomically
from node.log import LOGGER, warn
from node.p2p.addresses import PeerAddress, parse_multiaddr, split_endpoint, with_fragment
from node.p2p.announcements import MAX_COMMITMENTS, MAX_URL_BYTES, Held, Offers, Scope
from node.p2p.keys import load_secret
from node.p2p.listening import Listening, listening
from node.p2p.myself import Chain, Myself
from node.p2p.network import Network
from node.p2p.others import Alone
from node.p2p.sidecar import Sidecar
from node.record import Record
from node.roles.directory import belongs, core, staked, url_of
from node.roles.member import Member
from node.roles.pieces import HeldPieces
from node.rollouts.store import RolloutStore
from node.shards.bans import Bans

TELLING_SECONDS: Final = 5.0  # between two looks at what there is to tell
TOLD_AGAIN_SECONDS: Final = 120.0  # for those who came later
SAVED_AGAIN_SECONDS: Final = 60.0  # at least so often `status` gets a new word
STAKED_TRIED: Final = 32  # nodes with stake whose addresses are looked at, of however many there are


@asynccontextmanager
async def present(member: Member, key: LocalAccount | None, url: str) -> AsyncIterator[str]:
    """`member.others` are its peers while the block runs; what to announce on chain as its endpoint: `url`, and where
    its libp2p listens.

    Raises: ConfigError: the port of libp2p is taken.
    """
    settings = member.settings.libp2p
    if key is None or not settings.on:
        member.others = Alone("--no-p2p")
        if key is not None:
            await asyncio.to_thread(_save, member)
        yield url
        return
    try:
        secret = await asyncio.to_thread(load_secret, member.state.peer_key)
    except StoreError as error:
        warn("libp2p is off: the chain's record and HTTP go on", reason=error)
        member.others = Alone(str(error))
        yield url
        return
    with listening(member.settings.host, settings.port, member.settings.allow_private, secret) as taken:
        async with _running(member, key, taken, url):
            yield _announced(url, taken.address)


@asynccontextmanager
async def _running(member: Member, key: LocalAccount, taken: Listening, url: str) -> AsyncIterator[None]:
    network = _network(member, key, taken, url, await asyncio.to_thread(Bans, member.state.banned_peers))
    sidecar = Sidecar(taken, network, member.state.peer_log)
    network.link = sidecar
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sidecar.running())
        member.others = network
        stack.enter_context(_live_sources(member))
        for work in (network.run, lambda: _tell(member, sidecar)):
            await stack.enter_async_context(_beside(member, work))
        try:
            yield
        finally:
            member.others = Alone("the role has stopped")
            await asyncio.to_thread(_save, member)


@contextmanager
def _live_sources(member: Member) -> Iterator[None]:
    """Weights are asked for where live nodes say they are, too, after where the chain says."""
    before = member.downloader.sources
    member.downloader.sources = lambda: tuple(dict.fromkeys((*before(), *member.others.endpoints().values())))
    try:
        yield
    finally:
        member.downloader.sources = before


def _network(member: Member, key: LocalAccount, taken: Listening, url: str, bans: Bans) -> Network:
    named = tuple(map(parse_multiaddr, member.settings.libp2p.peers))
    myself = Myself(key, taken.secret, url, urlsplit(url).hostname or None, named)
    return Network(
        myself, Scope(member.domain, member.run.id), Domain(member.ledger.chain_id, member.ledger.staking),
        _chain(member.record), HeldPieces(member), member.clock, member.peers.session, member.told_of, bans,
    )  # fmt: skip


def _chain(record: Record) -> Chain:
    return Chain(
        belongs=lambda who: belongs(record, who),
        endpoint_of=lambda who: url_of(record, who),
        core=lambda: _addresses(record, core(record)),
        nodes=lambda: _addresses(record, _some(list(staked(record)))),
        is_open=lambda commitment: commitment in record.unfinished,
        time=lambda: record.head.time,
    )


def _some(nodes: list[Address]) -> list[Address]:
    return random.sample(nodes, min(STAKED_TRIED, len(nodes)))


def _addresses(record: Record, nodes: "list[Address]") -> Iterator[PeerAddress]:
    """Where `nodes` announced on chain that their libp2p listens."""
    for who in nodes:
        _, address = split_endpoint(record.endpoints.get(who, ""))
        if address is not None:
            yield address


def _announced(url: str, address: PeerAddress) -> str:
    """What goes on chain; without libp2p's part where that is too long for it, or nobody can connect."""
    whole = with_fragment(url, address.port, address.peer)
    return whole if url and len(whole.encode()) <= MAX_URL_BYTES else url


@asynccontextmanager
async def _beside(member: Member, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """`work` runs while the block does; where it fails, which is a bug, libp2p is off and the role goes on."""
    task = asyncio.ensure_future(work())

    def over(done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            LOGGER.error("libp2p is off: this is a bug", exc_info=error)
            member.others = Alone("it failed: the log says how")

    task.add_done_callback(over)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _tell(member: Member, sidecar: Sidecar) -> None:
    """Tells peers what there is here, and `status` how it stands."""
    telling = _Telling(member)
    saved, saved_at = "", float("-inf")
    while True:
        await telling.look()
        now = member.clock.monotonic()
        standing = json.dumps(member.others.standing() | {"why": sidecar.reason})
        if standing != saved or now - saved_at >= SAVED_AGAIN_SECONDS:
            saved, saved_at = standing, now
            await asyncio.to_thread(_save, member, sidecar.reason)
        await member.clock.sleep(TELLING_SECONDS)


def _save(member: Member, why: str | None = None) -> None:
    """For `status`, which another process asks. What the disk refuses is not worth a line: it says how old it is."""
    found: dict[str, Any] = member.others.standing()
    whole = {**found, "why": found.get("why") or why, "at": member.record.head.time}
    with suppress(StoreError):
        write_atomically(member.state.peers, json.dumps(whole).encode())


class _Telling:
    """What has been told: only news, and all of it again now and then."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.offered: set[Digest] = set()
        self.held: tuple[Digest, bool] | None = None  # of which version it was told, and whether all of it
        self.again = member.clock.monotonic() + TOLD_AGAIN_SECONDS

    async def look(self) -> None:
        if self.member.clock.monotonic() >= self.again:
            self.again = self.member.clock.monotonic() + TOLD_AGAIN_SECONDS
            self.offered, self.held = set(), None
        with suppress(StoreError, NotFound, Malformed):
            await self._offer()
        with suppress(StoreError, NotFound, Malformed):
            await self._hold()

    async def _offer(self) -> None:
        """The rollout files here whose submissions somebody may still ask about."""
        here = await asyncio.to_thread(RolloutStore(self.member.state.rollouts).list)
        wanted = {commitment for commitment in here if commitment in self.member.record.unfinished}
        news = sorted(wanted - self.offered)[:MAX_COMMITMENTS]
        self.offered = (self.offered & wanted) | set(news)
        if news:
            self.member.others.announce(Offers(tuple(news)))

    async def _hold(self) -> None:
        """What there is of the latest version, when there is some of it, and when there is all."""
        member = self.member
        latest = member.record.latest
        root = None if latest is None or not member.settings.sharing.weights else member.record.root(latest)
        manifest = None if root is None else await asyncio.to_thread(member.checkpoints.known, root)
        if root is None or manifest is None:
            return
        bitmap = member.checkpoints.have(root)
        count = sum(byte.bit_count() for byte in bitmap)
        told = root, count == manifest.chunks
        if count and told != self.held:  # not each chunk: every node of the run hears it
            self.held = told
            member.others.announce(Held(root, manifest.chunks, bitmap))
