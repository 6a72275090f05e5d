"""What roles know of the other nodes beside the chain's record: the network of peers, or nobody where there is none."""

from collections.abc import Sequence
from typing import Any, Protocol

from ledger.base import Address, Digest
from node.errors import NotFound
from node.p2p.announcements import News
from node.p2p.content import Content


class Others(Protocol):
    """Nothing that is said here is believed but what was checked: who said it, and content by its digest."""

    def announce(self, news: News) -> None:
        """Tells everybody, as far as there is anybody to tell."""

    def endpoints(self) -> dict[Address, str]:
        """Of the nodes that are live: where they say that they can be connected to. Hostile URLs."""

    def holders(self, commitment: Digest) -> tuple[Address, ...]:
        """Who says that it holds a rollout file."""

    def having(self, root: Digest) -> tuple[Address, ...]:
        """Who says that it holds some of checkpoint `root`."""

    async def fetch(self, content: Content, nodes: Sequence[Address]) -> bytes:
        """`content` from one of `nodes`, by streams; who sends something else is asked no more. Raises: NotFound."""

    def standing(self) -> dict[str, Any]:
        """For `status`."""


class Alone:
    """Where libp2p is off: the chain's record and HTTP are all there is."""

    def __init__(self, why: str) -> None:
        self.why = why

    def announce(self, news: News) -> None:
        return None

    def endpoints(self) -> dict[Address, str]:
        return {}

    def holders(self, commitment: Digest) -> tuple[Address, ...]:
        return ()

    def having(self, root: Digest) -> tuple[Address, ...]:
        return ()

    async def fetch(self, content: Content, nodes: Sequence[Address]) -> bytes:
        raise NotFound(f"libp2p is off: {self.why}")

    def standing(self) -> dict[str, Any]:
        return {"on": False, "why": self.why}
