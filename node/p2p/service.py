"""What an identified peer may ask of this node, and how much of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ledger.base import Address
from node.buckets import Rates
from node.clock import Clock
from node.crowd import Crowd
from node.errors import Malformed, NotFound
from node.p2p.addresses import PEER_ID_BYTES, peer_id_bytes
from node.p2p.book import Book
from node.p2p.content import SIZE, Piece, PieceSource, encode_answer
from node.p2p.crowd import place
from node.p2p.forwarding import Forwards
from node.p2p.gossip import Gossip, sized
from node.p2p.limits import MAX_NODES, MIB
from node.p2p.link import Link
from node.p2p.protocols import CONTENT, FORWARD, GOSSIP, PEERS, REACH
from node.p2p.reach import Prober

MAX_TOLD: Final = 64  # heartbeats in one answer
MAX_TOLD_BYTES: Final = 256 << 10
CONTENT_BYTES_PER_SECOND, CONTENT_BURST_BYTES = 8.0 * MIB, 64.0 * MIB  # for one node, forwarded ones included
CONTENT_AT_ONCE: Final = 24  # asked of this node: with what it forwards for others, fewer than `MAX_REQUESTS`
PAUSE_SECONDS: Final = 1.0  # at most, for who asks faster than it may: more is refused
PIECE_SECONDS: Final = 20.0  # for a whole one


@dataclass(slots=True)
class Service:
    """Of one node; `owners`: whose each peer is that may ask. What a node had counts for whatever peer it is next."""

    link: Link
    owners: Mapping[str, Address]
    book: Book
    gossip: Gossip
    pieces: PieceSource
    prober: Prober
    clock: Clock
    content: Rates = field(init=False)  # bytes, by node
    giving: Crowd = field(default_factory=lambda: Crowd(CONTENT_AT_ONCE, newest_goes=True))
    forwards: Forwards = field(default_factory=Forwards)

    def __post_init__(self) -> None:
        self.content = Rates(CONTENT_BYTES_PER_SECOND, CONTENT_BURST_BYTES, MAX_NODES, self.clock.monotonic)

    async def answer(self, peer: str, protocol: str, body: bytes) -> bytes:
        """Raises: Malformed, NotFound, StoreError: it is refused."""
        asker = self.owners.get(peer)
        if asker is None:
            raise Malformed("not identified")
        if protocol == GOSSIP:
            self.gossip.received(peer, body)
            return b""
        if protocol == PEERS:
            return self._told()
        if protocol == CONTENT:
            return await self._content(asker, Piece.parse(body))
        if protocol == FORWARD:
            return await self._forward(asker, body[:PEER_ID_BYTES], Piece.parse(body[PEER_ID_BYTES:]))
        if protocol == REACH:
            return await self.prober.answer(asker)
        raise Malformed(f"no protocol {protocol}")

    def _told(self) -> bytes:
        """Heartbeats of nodes that are live, the newest: by these peers find each other."""
        messages = [sized(said.data) for said in self.book.live()[:MAX_TOLD]]
        while sum(map(len, messages)) > MAX_TOLD_BYTES:
            messages.pop()
        return b"".join(messages)

    async def _content(self, asker: Address, wanted: Piece) -> bytes:
        async with place(self.giving, asker):
            await self._allow(asker, wanted.length)
            return encode_answer(*await self.pieces.piece(asker, wanted))

    async def _forward(self, asker: Address, target: bytes, wanted: Piece) -> bytes:
        """Asks a peer that is connected here for a piece, or its beginning, for one that cannot connect to it."""
        found = next((peer for peer in self.owners if peer_id_bytes(peer) == target), None)
        if found is None:
            raise NotFound("that peer is not connected")

        async def send(piece: Piece) -> bytes:
            most = SIZE.size + piece.length
            return await self.link.ask(found, CONTENT, piece.encode(), most, PIECE_SECONDS)

        line = self.forwards.line(self.owners[found])
        async with place(self.forwards.places, asker):
            await self._allow(asker, min(wanted.length, line.pace.size))
            answer = await line.ask(asker, wanted, send)
            await self.pieces.turn(asker, len(answer))
            return answer

    async def _allow(self, asker: Address, size: int) -> None:
        """Returns when `asker` may have `size` bytes more. Raises: NotFound: it has asked for too many."""
        allowance = self.content.of(asker)
        if allowance.seconds_until(size) > PAUSE_SECONDS:
            raise NotFound("too much at once")
        await self.clock.sleep(allowance.overdraw(size))
