"""Announcements passed on from peer to peer: each once, in bounded memory, at a bounded rate.

py-libp2p's gossipsub is not used: it takes ten messages a second of a peer and drops the rest, drops what is over its
size without a word, and a peer's abrupt end ends its service. Here a message goes to at most `FANOUT` peers in batches
that they answer, so that a slow one is noticed, waits for nobody, and loses the oldest first.
"""

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from node.buckets import Rates
from node.clock import Clock
from node.errors import Malformed, NotFound
from node.p2p.announcements import MAX_BYTES, Announcement, Scope, parse
from node.p2p.identity import Identities, Stranger
from node.p2p.limits import MAX_NODES
from node.p2p.link import Link
from node.p2p.protocols import GOSSIP
from node.p2p.seen import MAX_AGE_SECONDS, OWN, Seen

FANOUT: Final = 12  # peers that a message is passed on to: it misses one of many nodes once in e^12, 160,000, times
OWN_FANOUT: Final = 32  # peers that an own one is sent to
MAX_BATCH_BYTES: Final = 512 << 10
MAX_BATCH: Final = 64  # messages
MAX_WAITING: Final = 256  # messages for one peer; then the oldest goes
SEND_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.5  # before a batch that was not taken is sent again
MAX_FAILURES: Final = 3  # batches in a row that a peer did not take, before it is left
SENDER_PER_SECOND, SENDER_BURST = 100.0, 1_000.0  # messages that the peers of one node may pass on
ORIGIN_PER_SECOND, ORIGIN_BURST = 5.0, 200.0  # messages that one node may announce
INVALID_PER_SECOND, MAX_INVALID = 1 / 60, 20.0  # of a node's peers that nobody can have announced, before they are left

LENGTH: Final = struct.Struct("!I")

Hear = Callable[[Announcement], None]


@dataclass(slots=True)
class Counts:
    """What became of messages, since the node began."""

    heard: int = 0
    repeated: int = 0
    invalid: int = 0
    strange: int = 0
    throttled: int = 0
    dropped: int = 0  # that a peer did not take in time


@dataclass(slots=True)
class _Neighbour:
    """A peer of `node` that messages are passed on to."""

    node: str
    waiting: "deque[bytes]" = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    something: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    sending: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class Gossip:
    """Of one node in one run. `hear` gets every message of others that is new and true to its sender.

    Rates are of nodes: a peer that connects again, or comes under another peer id, has what was left.
    """

    link: Link
    scope: Scope
    identities: Identities
    hear: Hear
    clock: Clock
    wall: Callable[[], float]  # seconds since 1970
    rng: random.Random
    counts: Counts = field(default_factory=Counts)
    neighbours: dict[str, _Neighbour] = field(default_factory=dict)
    seen: Seen = field(init=False)
    senders: Rates = field(init=False)
    invalid: Rates = field(init=False)
    origins: Rates = field(init=False)

    def __post_init__(self) -> None:
        now = self.clock.monotonic
        self.seen = Seen(now)
        self.senders = Rates(SENDER_PER_SECOND, SENDER_BURST, MAX_NODES, now)
        self.invalid = Rates(INVALID_PER_SECOND, MAX_INVALID, MAX_NODES, now)
        self.origins = Rates(ORIGIN_PER_SECOND, ORIGIN_BURST, MAX_NODES, now)

    def add(self, peer: str, node: str, first: bytes = b"") -> None:
        """Messages go to `peer`, which is `node`'s, from now on, and `first` before any other."""
        if peer not in self.neighbours:
            neighbour = self.neighbours[peer] = _Neighbour(node)
            neighbour.sending = asyncio.create_task(self._send(peer, neighbour))
            if first:
                neighbour.waiting.append(first)
                neighbour.something.set()

    def remove(self, peer: str) -> None:
        neighbour = self.neighbours.pop(peer, None)
        if neighbour is not None and neighbour.sending is not None:
            neighbour.sending.cancel()

    def close(self) -> None:
        for peer in list(self.neighbours):
            self.remove(peer)

    def publish(self, data: bytes) -> None:
        """Has `data`, this node's own announcement, passed on. Raises: Malformed: over a limit."""
        if len(data) > MAX_BYTES:
            raise Malformed(f"an announcement of {len(data)} bytes; at most {MAX_BYTES} are sent")
        self.seen.add(_digest(data), OWN)
        self._pass_on(data, list(self.neighbours), OWN_FANOUT)

    def received(self, peer: str, body: bytes) -> None:
        """Takes a batch from `peer`. Raises: Malformed: it is none, or too many of its messages were invalid."""
        neighbour = self.neighbours.get(peer)
        if neighbour is None:
            raise Malformed("batches are taken of peers that are identified")
        rate, made_up = self.senders.of(neighbour.node), False
        for data in split(body):
            if not rate.take():
                self.counts.throttled += 1
                continue
            try:
                if (message := self.take(data)) is not None:
                    self._pass_on(message.data, [other for other in self.neighbours if other != peer], FANOUT)
            except Stranger:
                self.counts.strange += 1  # which is not the fault of who passed it on
            except Malformed:
                self.counts.invalid += 1
                made_up |= not self.invalid.of(neighbour.node).take()
        if made_up:
            self.link.drop(peer)
            raise Malformed("too many messages that nobody can have announced")

    def take(self, data: bytes) -> Announcement | None:
        """Hears `data`; what is to be passed on. Raises: Malformed: nobody can have announced it; Stranger."""
        digest = _digest(data)
        if digest in self.seen:
            self.counts.repeated += 1
            return None
        message = parse(data, self.scope)
        if abs(self.wall() - message.milliseconds / 1000) > MAX_AGE_SECONDS:
            raise Stranger("an announcement of another time")
        node = self.identities.require(message.peer, message.statement)
        if not self.origins.of(node).take() or not self.seen.add(digest, node):
            self.counts.throttled += 1  # and may be heard later, once
            return None
        self.counts.heard += 1
        self.hear(message)
        return message

    def _pass_on(self, data: bytes, peers: Sequence[str], most: int) -> None:
        for peer in self.rng.sample(peers, min(most, len(peers))):
            neighbour = self.neighbours[peer]
            self.counts.dropped += len(neighbour.waiting) == MAX_WAITING
            neighbour.waiting.append(data)
            neighbour.something.set()

    async def _send(self, peer: str, neighbour: _Neighbour) -> None:
        """Hands on what waits for `peer`, a batch at a time, until it has not taken one at several tries."""
        while neighbour.failures < MAX_FAILURES:
            if not neighbour.waiting:
                neighbour.something.clear()
                await neighbour.something.wait()
            batch = list(_batch(neighbour.waiting))
            try:
                await self.link.ask(peer, GOSSIP, b"".join(map(sized, batch)), limit=0, seconds=SEND_SECONDS)
                neighbour.failures = 0
            except NotFound:
                neighbour.failures += 1
                self._put_back(neighbour, batch)
                await self.clock.sleep(RETRY_SECONDS)
        self.counts.dropped += len(neighbour.waiting)
        self.link.drop(peer)

    def _put_back(self, neighbour: _Neighbour, batch: Sequence[bytes]) -> None:
        """What was not taken waits again, as far as there is room beside what came since."""
        room = MAX_WAITING - len(neighbour.waiting)
        kept = batch[len(batch) - room :] if room < len(batch) else batch
        self.counts.dropped += len(batch) - len(kept)
        neighbour.waiting.extendleft(reversed(kept))


def sized(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def split(body: bytes, most: int = MAX_BATCH) -> Iterator[bytes]:
    """The messages of a batch: u32 length || message, each. Raises: Malformed, before anything is done with it."""
    found, at = list[bytes](), 0
    while at < len(body):
        if len(body) - at < LENGTH.size or len(found) == most:
            raise Malformed("a batch that is cut off, or has too many messages")
        (length,) = LENGTH.unpack_from(body, at)
        message = body[at + LENGTH.size : at + LENGTH.size + length]
        if length > MAX_BYTES or len(message) != length:
            raise Malformed("a batch with a message that is cut off or too long")
        found.append(message)
        at += LENGTH.size + length
    return iter(found)


def _batch(waiting: "deque[bytes]") -> Iterator[bytes]:
    """Takes the oldest messages, as many as a batch may have."""
    room = MAX_BATCH_BYTES
    for _ in range(MAX_BATCH):
        if not waiting or len(waiting[0]) + LENGTH.size > room:
            return
        room -= len(waiting[0]) + LENGTH.size
        yield waiting.popleft()


def _digest(data: bytes) -> bytes:
    return blake3(data).digest()
