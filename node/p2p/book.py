"""What nodes have announced, the newest word of each: where they are, what they hold. Bounded; forgotten in time."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ledger.base import Address, Digest
from node.buckets import Rates
from node.p2p.addresses import PeerAddress
from node.p2p.announcements import Announcement, Heartbeat, Held, Offers, Verdicts
from node.p2p.limits import MAX_NODES

MAX_OFFERS: Final = 8_192  # commitments; the longest unheard of goes first
MAX_HOLDERS: Final = 8  # remembered of one commitment; anybody can say so, and those that are to hold it come first
LIVE_SECONDS: Final = 300.0  # that a word counts: heartbeats come each minute, what a node holds is said each two
CHANGES_PER_SECOND, CHANGES_BURST = 1 / 60, 3.0  # of where a node says that it is: others connect to it there

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Held:
    """Of some of checkpoint `root`, at a time in seconds since 1970. Which chunks, its node is asked by HTTP."""

    root: Digest
    at: float


@dataclass(slots=True)
class Book:
    """Of one run. Only announcements that were checked come in here."""

    now: Callable[[], float]  # seconds since 1970
    is_open: Callable[[Digest], bool]  # whether a commitment is one whose file somebody may still ask for
    keeps: Callable[[Digest, Address], bool]  # whether a node is to hold that file
    heartbeats: "OrderedDict[Address, Announcement]" = field(default_factory=OrderedDict)
    held: "OrderedDict[Address, _Held]" = field(default_factory=OrderedDict)
    offers: "OrderedDict[Digest, dict[Address, float]]" = field(default_factory=OrderedDict)  # by whom, and when
    told: "OrderedDict[tuple[Address, type], int]" = field(default_factory=OrderedDict)  # newest of a kind, ms
    changes: Rates = field(init=False)

    def __post_init__(self) -> None:
        self.changes = Rates(CHANGES_PER_SECOND, CHANGES_BURST, MAX_NODES, self.now)

    def add(self, message: Announcement) -> bool:
        """Takes down what was announced; whether it counts: it is not older than what the node had said of that
        before, and the node does not move too often.
        """
        node, news, seconds = message.statement.node, message.news, message.milliseconds / 1000
        if message.milliseconds < self.told.get((node, type(news)), 0) and not isinstance(news, Offers | Verdicts):
            return False
        if isinstance(news, Heartbeat) and self._moves(message) and not self.changes.of(node).take():
            return False
        _put(self.told, (node, type(news)), message.milliseconds, 4 * MAX_NODES)
        match news:
            case Heartbeat():
                _put(self.heartbeats, node, message, MAX_NODES)
            case Held(root, _, bitmap) if any(bitmap):
                _put(self.held, node, _Held(root, seconds), MAX_NODES)
            case Held():
                self.held.pop(node, None)
            case Offers(commitments):
                for commitment in filter(self.is_open, commitments):
                    self._offer(commitment, node, seconds)
        return True

    def _moves(self, message: Announcement) -> bool:
        before = self.heartbeats.get(message.statement.node)
        return before is None or (before.peer, before.news) != (message.peer, message.news)

    def _offer(self, commitment: Digest, node: Address, at: float) -> None:
        holders = self._live_holders(commitment)
        if node not in holders and len(holders) >= MAX_HOLDERS and self.keeps(commitment, node):
            others = [each for each in holders if not self.keeps(commitment, each)]
            if others:
                del holders[min(others, key=holders.__getitem__)]
        if node in holders or len(holders) < MAX_HOLDERS:
            holders[node] = max(at, holders.get(node, at))
        _put(self.offers, commitment, holders, MAX_OFFERS)

    def _live_holders(self, commitment: Digest) -> dict[Address, float]:
        return {node: at for node, at in self.offers.get(commitment, {}).items() if self._counts(at)}

    def forget(self, belongs: Callable[[Address], bool]) -> None:
        """Drops what is out of date, and what nodes said that have no part in the run any more."""
        for node in [node for node, said in self.heartbeats.items() if not self._is_live(said) or not belongs(node)]:
            del self.heartbeats[node]
        for node in [node for node, held in self.held.items() if not self._counts(held.at) or not belongs(node)]:
            del self.held[node]
        for commitment in list(self.offers):
            holders = {node: at for node, at in self._live_holders(commitment).items() if belongs(node)}
            if holders and self.is_open(commitment):
                self.offers[commitment] = holders
            else:
                del self.offers[commitment]

    def _counts(self, at: float) -> bool:
        return self.now() - at < LIVE_SECONDS

    def _is_live(self, message: Announcement) -> bool:
        return self._counts(message.milliseconds / 1000)

    def live(self) -> list[Announcement]:
        """Heartbeats of nodes that are there, the newest first."""
        return [said for said in reversed(self.heartbeats.values()) if self._is_live(said)]

    def endpoints(self) -> dict[Address, str]:
        """Of live nodes that say they can be connected to."""
        return {said.statement.node: endpoint for said in self.live() if (endpoint := _heartbeat(said).endpoint)}

    def addresses(self) -> list[PeerAddress]:
        """Where live nodes listen."""
        return [address for said in self.live() for address in _heartbeat(said).addresses if address.peer == said.peer]

    def peers_of(self, nodes: Iterable[Address]) -> list[str]:
        """The peer ids under which `nodes` are live."""
        known = ((node, self.heartbeats.get(node)) for node in nodes)
        return [said.peer for _, said in known if said is not None and self._is_live(said)]

    def holders(self, commitment: Digest) -> tuple[Address, ...]:
        """Who said lately that it holds a rollout file."""
        return tuple(self._live_holders(commitment))

    def having(self, root: Digest) -> tuple[Address, ...]:
        """Who said lately that it holds some of checkpoint `root`."""
        return tuple(node for node, held in self.held.items() if held.root == root and self._counts(held.at))


def _heartbeat(message: Announcement) -> Heartbeat:
    assert isinstance(message.news, Heartbeat)
    return message.news


def _put(where: "OrderedDict[K, V]", key: K, value: V, most: int) -> None:
    where[key] = value
    where.move_to_end(key)
    if len(where) > most:
        where.popitem(last=False)
