"""Which announced URLs this node connects to at all: it leaves private addresses out, and so a whole local network."""

from collections.abc import Sequence
from dataclasses import dataclass

from node.errors import Malformed
from node.log import warn
from node.transport import vet_url

MAX_NAMED = 4  # endpoints that a message names
ADVICE = "on a local network, add --allow-private"


def askable(urls: Sequence[str], allow_private: bool) -> list[str]:
    """Those of `urls` that this node connects to, as far as can be known before their names are resolved."""
    return [url for url in urls if _may_be_asked(url, allow_private)]


@dataclass(slots=True)
class OutOfReach:
    """Whether all who may hold the weights announce what this node does not connect to. It goes on: others may come."""

    allow_private: bool
    said: frozenset[str] = frozenset()

    def look(self, urls: Sequence[str]) -> None:
        """Warns where none of `urls` may be asked: once, and again when they are others."""
        refused = frozenset() if askable(urls, self.allow_private) else frozenset(urls)
        if refused and refused != self.said:
            what = "all nodes that may hold the weights announce private addresses, so none is asked"
            warn(f"{what}: {ADVICE}", urls=sorted(refused)[:MAX_NAMED])
        self.said = refused


def _may_be_asked(url: str, allow_private: bool) -> bool:
    try:
        vet_url(url, allow_private)
    except Malformed:
        return False
    return True
