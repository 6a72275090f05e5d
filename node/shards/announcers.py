"""Whose URLs sources are: who announced one that lied is banned too, and with it whatever it announces next.

A ban of the whole host and port would be worse: on a host that several share, a liar could have others banned.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ledger.base import Address
from node.bans import Bans
from node.log import warn

BLAMED_SECONDS = 180.0  # after a node last had a URL: longer than one answer takes, and the address may be another's
MAX_ANNOUNCED = 8192  # URLs of nodes that are remembered; the longest unseen is forgotten first


@dataclass(slots=True)
class Announcers:
    """Of the sources of one downloader."""

    bans: Bans
    now: Callable[[], float]  # monotonic
    # When they last went together.
    _seen: "OrderedDict[tuple[str, Address], float]" = field(default_factory=OrderedDict)

    def urls(self, announced: Iterable[tuple[Address, str]]) -> tuple[str, ...]:
        """What nodes announced that are not banned, each URL once."""
        allowed = [(url, node) for node, url in announced if node not in self.bans]
        for pair in allowed:
            self._note(pair)
        return tuple(dict.fromkeys(url for url, _ in allowed))

    def ban(self, url: str, reason: str) -> None:
        """Bans `url`, and the nodes that had it lately, which is said once."""
        after = self.now() - BLAMED_SECONDS
        nodes = [node for (seen, node), at in self._seen.items() if seen == url and at >= after]
        if url not in self.bans:
            warn("a source sent wrong bytes and is not asked again", url=url, nodes=nodes, reason=reason)
        self.bans.add(url, reason)
        for node in nodes:
            self.bans.add(node, f"{url}: {reason}")

    def _note(self, pair: tuple[str, Address]) -> None:
        self._seen[pair] = self.now()
        self._seen.move_to_end(pair)
        if len(self._seen) > MAX_ANNOUNCED:
            self._seen.popitem(last=False)
