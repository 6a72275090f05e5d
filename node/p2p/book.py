"""What nodes have announced, the newest word of each: where they are, what they hold. Bounded; forgotten in time."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ledger.base import Address, Digest
from node.p2p.addresses import PeerAddress
from node.p2p.announcements import Announcement, Heartbeat, Held, Offers

MAX_NODES: Final = 4_096
MAX_OFFERS: Final = 8_192  # commitments; the longest unheard of goes first
MAX_HOLDERS: Final = 8  # remembered of one commitment
LIVE_SECONDS: Final = 300.0  # after its last heartbeat a node is not live any more; they come once a minute

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Book:
    """Of one run. Only announcements that were checked come in here."""

    now: Callable[[], float]  # seconds since 1970
    is_open: Callable[[Digest], bool]  # whether a commitment is one whose file somebody may still ask for
    heartbeats: "OrderedDict[Address, Announcement]" = field(default_factory=OrderedDict)
    held: "OrderedDict[Address, Held]" = field(default_factory=OrderedDict)
    offers: "OrderedDict[Digest, dict[Address, None]]" = field(default_factory=OrderedDict)
    told: "OrderedDict[tuple[Address, type], int]" = field(
        default_factory=OrderedDict
    )  # newest of a kind, milliseconds

    def add(self, message: Announcement) -> bool:
        """Takes down what was announced; whether it was not older than what the node had said of that before."""
        node, news = message.statement.node, message.news
        if message.milliseconds < self.told.get((node, type(news)), 0) and not isinstance(news, Offers):
            return False
        _put(self.told, (node, type(news)), message.milliseconds, 4 * MAX_NODES)
        match news:
            case Heartbeat():
                _put(self.heartbeats, node, message, MAX_NODES)
            case Held():
                _put(self.held, node, news, MAX_NODES)
            case Offers(commitments):
                for commitment in filter(self.is_open, commitments):
                    self._offer(commitment, node)
        return True

    def _offer(self, commitment: Digest, node: Address) -> None:
        holders = self.offers.get(commitment, {})
        if len(holders) < MAX_HOLDERS:
            holders[node] = None
        _put(self.offers, commitment, holders, MAX_OFFERS)

    def forget(self, belongs: Callable[[Address], bool]) -> None:
        """Drops what is out of date, and what nodes said that have no part in the run any more."""
        for node in [node for node, said in self.heartbeats.items() if not self._is_live(said) or not belongs(node)]:
            del self.heartbeats[node]
            self.held.pop(node, None)

    def _is_live(self, message: Announcement) -> bool:
        return self.now() - message.milliseconds / 1000 < LIVE_SECONDS

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
        """Who says that it holds a rollout file."""
        return tuple(self.offers.get(commitment, ()))

    def having(self, root: Digest) -> tuple[Address, ...]:
        """Who says that it holds some of checkpoint `root`."""
        return tuple(node for node, held in self.held.items() if held.root == root)


def _heartbeat(message: Announcement) -> Heartbeat:
    assert isinstance(message.news, Heartbeat)
    return message.news


def _put(where: "OrderedDict[K, V]", key: K, value: V, most: int) -> None:
    where[key] = value
    where.move_to_end(key)
    if len(where) > most:
        where.popitem(last=False)
