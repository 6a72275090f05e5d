"""Content of one of several holders: in an order that nobody can stand at the head of, each as long as it gets on.

Who sends something else is banned where it was asked itself. What came through a relay may be either's doing: nobody is
blamed, and the next way is tried. What has come on a way that broke off is gone on from there, and on no other way.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from ledger.base import Address, Digest
from node.bans import Bans
from node.errors import Malformed, NotFound
from node.log import warn
from node.p2p.addresses import peer_id_bytes
from node.p2p.book import Book
from node.p2p.content import Content, fetched
from node.p2p.limits import MIB
from node.p2p.link import Link
from node.p2p.pace import LEAST_BYTES, MOST_BYTES, Pace
from node.p2p.protocols import CONTENT, FORWARD
from node.p2p.service import PIECE_SECONDS

RELAYS_TRIED: Final = 3
WAYS_TRIED: Final = 12  # to one content
SILENT_SECONDS: Final = 10.0  # that a holder may lose in all, waiting for its first piece or between two
LEAST_BYTES_PER_SECOND: Final = 10e3  # for what comes it gets the time of such a line: one of 100 kB/s asked by ten
PIECE_TAKES_SECONDS: Final = 5.0  # more than a relay's round, so that it is the relay who shares a line out
MAX_REMEMBERED: Final = 4_096  # holders; the longest unasked is forgotten first
MAX_BEGUN_BYTES: Final = 64 * MIB  # of what came in part; likewise


_Begun = tuple[str, Address, Digest]  # of whom a part was had, who holds the content, and which


@dataclass(frozen=True, slots=True)
class _Way:
    """To the content of `node`: `ask` sends a request for a piece to `peer`, its own, or, unless `direct`, a relay."""

    node: Address
    peer: str
    ask: Callable[[bytes], Awaitable[bytes]]
    direct: bool


@dataclass(slots=True)
class Fetcher:
    """For one node; `owners`: whose each peer is that is connected and identified."""

    link: Link
    owners: Mapping[str, Address]
    book: Book
    bans: Bans
    rng: random.Random
    silent_seconds: float = SILENT_SECONDS
    _begun: "OrderedDict[_Begun, bytearray]" = field(default_factory=OrderedDict)
    _gave: "OrderedDict[Address, bool]" = field(default_factory=OrderedDict)  # whether it did when it was last asked

    async def fetch(self, content: Content, nodes: Sequence[Address]) -> bytes:
        """From one of `nodes`: from itself where it is connected, else through peers that may be. Raises: NotFound."""
        ways = (way for node in self._order(nodes) for way in self._ways(node, content.digest))
        for way in islice(ways, WAYS_TRIED):
            if (data := await self._answer(way, content)) is not None:
                return data
        raise NotFound(f"no peer handed over {content.digest.hex()} by a stream")

    def _order(self, nodes: Iterable[Address]) -> list[Address]:
        """Those not banned: who gave what it was asked for, then who is not known, then who did not; each drawn."""
        order = [node for node in dict.fromkeys(nodes) if node not in self.bans]
        self.rng.shuffle(order)
        return sorted(order, key=lambda node: {True: 0, None: 1, False: 2}[self._gave.get(node)])

    def _ways(self, node: Address, digest: Digest) -> Iterator[_Way]:
        direct = [peer for peer, owner in self.owners.items() if owner == node]
        yield from (_Way(node, peer, partial(self._ask_for_piece, peer), True) for peer in direct)
        for target in [] if direct else self.book.peers_of([node]):
            for relay in self._relays(node, digest):
                yield _Way(node, relay, partial(self._ask_through, relay, peer_id_bytes(target)), False)

    def _relays(self, node: Address, digest: Digest) -> list[str]:
        """Drawn; those first of which a part was had, but every other time only: one that drips would be for ever."""
        drawn = self.rng.sample(sorted(self.owners), min(RELAYS_TRIED, len(self.owners)))
        begun = [peer for peer in self.owners if (peer, node, digest) in self._begun]
        return list(dict.fromkeys(begun + drawn if self.rng.random() < 0.5 else drawn))[:RELAYS_TRIED]

    async def _ask_for_piece(self, peer: str, request: bytes) -> bytes:
        return await self.link.ask(peer, CONTENT, request, seconds=PIECE_SECONDS)

    async def _ask_through(self, relay: str, target: bytes, request: bytes) -> bytes:
        return await self.link.ask(relay, FORWARD, target + request, seconds=1.5 * PIECE_SECONDS)

    async def _answer(self, way: _Way, content: Content) -> bytes | None:
        """`content`, checked; None where this way does not lead to it."""
        if way.node in self.bans:
            return None
        self._note(way.node, gave=False)
        try:
            data = await self._received(way, content)
            await asyncio.to_thread(content.require, data)
        except (NotFound, TimeoutError):
            return None
        except Malformed as error:
            self._blame(way, content, error)
            return None
        self._note(way.node, gave=True)
        return data

    async def _received(self, way: _Way, content: Content) -> bytes:
        begun = way.peer, way.node, content.digest
        data = self._begun.pop(begun, bytearray())
        had = len(data)
        try:
            return await self._in_time(way, content, data)
        except (NotFound, TimeoutError, asyncio.CancelledError):
            if len(data) > had:  # else what came before may be more than there is
                self._keep(begun, data)
            raise

    def _keep(self, begun: _Begun, data: bytearray) -> None:
        self._begun[begun] = data
        while sum(map(len, self._begun.values())) > MAX_BEGUN_BYTES:
            self._begun.popitem(last=False)

    async def _in_time(self, way: _Way, content: Content, data: bytearray) -> bytes:
        async with asyncio.timeout(self.silent_seconds) as time:

            async def ask(request: bytes) -> bytes:
                answer = await way.ask(request)
                time.reschedule((time.when() or 0) + len(answer) / LEAST_BYTES_PER_SECOND)
                return answer

            return await fetched(ask, content, data, _pace(way))

    def _blame(self, way: _Way, content: Content, error: Malformed) -> None:
        if way.direct:
            self.bans.add(way.node, f"sent other content than {content.digest.hex()}: {error}")
            warn("a peer sent wrong content and is asked no more", node=way.node, content=content.digest, reason=error)

    def _note(self, node: Address, *, gave: bool) -> None:
        self._gave[node] = gave
        self._gave.move_to_end(node)
        if len(self._gave) > MAX_REMEMBERED:
            self._gave.popitem(last=False)


def _pace(way: _Way) -> Pace:
    """A relay knows the line, and forwards no more at once than that sends."""
    return Pace(PIECE_TAKES_SECONDS, LEAST_BYTES if way.direct else MOST_BYTES)
