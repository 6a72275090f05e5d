"""Whom a node seeks as peers, and when again: those that its user named, the chain names, other peers told of."""

import asyncio
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from node.clock import Clock
from node.errors import NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.link import Link

LOOK_SECONDS: Final = 5.0  # between two looks for somebody to dial
LEAST_SECONDS: Final = 0.5  # likewise, however much happens
AT_ONCE: Final = 4
ENOUGH: Final = 16  # connections, above which only bootstrap peers are dialled
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 300.0  # before a peer that did not answer is dialled again; doubled
MAX_REMEMBERED: Final = 4_096

Addresses = Callable[[], Iterable[PeerAddress]]
Failed = Callable[[PeerAddress, NotFound], None]  # hears of an address that there is no connection to, and why


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    seconds: float


@dataclass(slots=True)
class Seeker:
    """`bootstrap` are tried for ever, `others` while there are few connections. Losing all of them ends nothing.

    A pause is for a peer, wherever it says that it is: nobody has a node knock at one door after another.
    """

    link: Link
    me: str
    known: Collection[str]  # peers that are connected and identified
    bootstrap: Addresses
    others: Addresses
    failed: Failed
    clock: Clock
    rng: random.Random
    pauses: "OrderedDict[str, _Pause]" = field(default_factory=OrderedDict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        while True:
            chosen = self.chosen()
            for start in range(0, len(chosen), AT_ONCE):
                await asyncio.gather(*map(self.dial, chosen[start : start + AT_ONCE]))
            await self.clock.sleep(LEAST_SECONDS)
            await self._rest()

    async def _rest(self) -> None:
        """Until it is time for the next look, or there is a reason for one."""
        sleeping = asyncio.ensure_future(self.clock.sleep(LOOK_SECONDS * self.rng.uniform(0.8, 1.2)))
        woken = asyncio.ensure_future(self.wake.wait())
        try:
            await asyncio.wait((sleeping, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.wake.clear()
            sleeping.cancel()
            woken.cancel()

    def chosen(self) -> list[PeerAddress]:
        """Whom to dial now."""
        connected = set(self.known)
        if self.link.address is None:
            return []
        first = self._open(self.bootstrap(), connected)
        room = max(0, ENOUGH - len(connected) - len(first))
        more = self._open(self.others(), connected | {address.peer for address in first})
        self.rng.shuffle(more)
        return first + more[:room]

    def _open(self, addresses: Iterable[PeerAddress], connected: set[str]) -> list[PeerAddress]:
        """One of the `addresses` of each peer that is not connected, and not to be left in peace."""
        now, found = self.clock.monotonic(), defaultdict[str, list[PeerAddress]](list)
        for address in addresses:
            pause = self.pauses.get(address.peer)
            if address.peer not in connected and address.peer != self.me and not (pause and now < pause.until):
                found[address.peer].append(address)
        return [self.rng.choice(each) for each in found.values()]

    async def dial(self, address: PeerAddress) -> None:
        """A peer that answers may still turn out to be nobody: the pause stays until it is known (`succeeded`)."""
        before = self.pauses.get(address.peer)
        seconds = FIRST_PAUSE_SECONDS if before is None else min(2 * before.seconds, MAX_PAUSE_SECONDS)
        self.pauses[address.peer] = _Pause(self.clock.monotonic() + seconds * self.rng.uniform(0.8, 1.2), seconds)
        self.pauses.move_to_end(address.peer)
        if len(self.pauses) > MAX_REMEMBERED:
            self.pauses.popitem(last=False)
        try:
            await self.link.dial(address)
        except NotFound as error:
            self.failed(address, error)

    def succeeded(self, peer: str) -> None:
        """`peer` is identified: when it is lost, it is dialled again soon, but not as often as it likes."""
        if peer in self.pauses:
            soon = self.clock.monotonic() + FIRST_PAUSE_SECONDS
            self.pauses[peer] = _Pause(min(self.pauses[peer].until, soon), FIRST_PAUSE_SECONDS / 2)
