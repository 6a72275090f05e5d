"""What the rest of this package needs of a network of peers, and one in memory beside the one of libp2p."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.limits import MAX_BODY_BYTES
from node.p2p.protocols import IDENTITY

ASK_SECONDS = 15.0


class Listener(Protocol):
    """Who hears of peers. Nothing here may raise but what is said."""

    def ready(self) -> None:
        """The network is there: peers can be dialled."""

    def opened(self, peer: str, dialled: bool) -> None:
        """`peer` is connected: nobody else can have that peer id. `dialled`: by this side."""

    def closed(self, peer: str) -> None: ...

    def lost(self) -> None:
        """The network is gone, and every connection with it; it may come back."""

    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        """The answer to a request of `peer`'s. Raises: Malformed, NotFound: it is refused."""


class Nobody:
    """Who listens before anybody does: hears of nothing, and answers nothing."""

    def ready(self) -> None:
        return None

    def opened(self, peer: str, dialled: bool) -> None:
        return None

    def closed(self, peer: str) -> None:
        return None

    def lost(self) -> None:
        return None

    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        raise NotFound("nobody listens")


class Link(Protocol):
    """Connections with peers, each by its peer id. What fails or takes too long raises NotFound."""

    @property
    def address(self) -> PeerAddress | None:
        """Where this node listens; None while it does not."""

    async def dial(self, address: PeerAddress) -> None: ...
    async def ask(
        self, peer: str, protocol: str, body: bytes, limit: int = MAX_BODY_BYTES, seconds: float = ASK_SECONDS
    ) -> bytes: ...
    def admit(self, peer: str, node: str) -> None:
        """`peer` is `node`'s: it may ask more than who this is."""

    def drop(self, peer: str) -> None: ...


@dataclass(slots=True)
class Wire:
    """A network in memory: every link made of it can dial every other."""

    links: "dict[str, MemoryLink]" = field(default_factory=dict)

    def link(self, peer: str, *, inbound: bool = True) -> "MemoryLink":
        """A node's link; without `inbound` nobody can dial it, as behind a NAT."""
        self.links[peer] = MemoryLink(self, peer, inbound)
        return self.links[peer]

    def cut(self, peer: str) -> None:
        """The node of `peer` is gone at once."""
        gone = self.links.pop(peer)
        for other in list(gone.connected):
            gone.connected.discard(other)
            self.links[other].hang_up(peer)


@dataclass(slots=True)
class MemoryLink:
    """As a sidecar's, in memory: one event loop, no bytes on any wire, the same limits."""

    wire: Wire
    peer: str
    inbound: bool
    listener: Listener = field(default_factory=Nobody)
    connected: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    asked: "defaultdict[str, int]" = field(default_factory=lambda: defaultdict(int))  # by protocol

    @property
    def address(self) -> PeerAddress | None:
        return PeerAddress("127.0.0.1", 1, self.peer)

    def listen(self, listener: Listener) -> None:
        """Has `listener` hear of peers, and answer them, from now on."""
        self.listener = listener

    async def dial(self, address: PeerAddress) -> None:
        await asyncio.sleep(0)
        other = self.wire.links.get(address.peer)
        if other is None or other is self or not other.inbound:
            raise NotFound(f"{address} does not answer")
        if address.peer not in self.connected:
            self.connected.add(address.peer)
            other.connected.add(self.peer)
            other.listener.opened(self.peer, dialled=False)
            self.listener.opened(address.peer, dialled=True)

    async def ask(
        self, peer: str, protocol: str, body: bytes, limit: int = MAX_BODY_BYTES, seconds: float = ASK_SECONDS
    ) -> bytes:
        await asyncio.sleep(0)
        other = self.wire.links.get(peer)
        if other is None or peer not in self.connected or len(body) > MAX_BODY_BYTES:
            raise NotFound(f"{peer} is not connected")
        if protocol != IDENTITY and self.peer not in other.admitted:
            raise NotFound(f"{peer} does not know who this is")
        other.asked[protocol] += 1
        try:
            async with asyncio.timeout(seconds):
                answer = await other.listener.asked(self.peer, protocol, body)
        except (Malformed, NotFound, TimeoutError) as error:
            raise NotFound(f"{peer}: refused") from error
        if len(answer) > limit:
            raise NotFound(f"{peer}: an answer of {len(answer)} bytes")
        return answer

    def admit(self, peer: str, node: str) -> None:
        self.admitted.add(peer)

    def drop(self, peer: str) -> None:
        if peer in self.connected:
            self.hang_up(peer)
            self.wire.links[peer].hang_up(self.peer)

    def hang_up(self, peer: str) -> None:
        self.connected.discard(peer)
        self.admitted.discard(peer)
        self.listener.closed(peer)
