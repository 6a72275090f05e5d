"""What a node hands on between others that cannot connect: whose turn it is at the line of the one who is asked.

A line sends two pieces at once: one is on its way while the next one is asked for. The next turn is of whoever had
fewest, so that who asks for many files has no more of a line than who does not. A turn is one however small its piece
is: it has the line for six round trips. No piece is larger than what the line sends in three seconds, in which all who
ask are to have one. Who never answers keeps nobody from another's line.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from ledger.base import Address
from node.crowd import Crowd
from node.fair_queue import FairQueue, Waiting
from node.p2p.content import Piece
from node.p2p.limits import MAX_NODES
from node.p2p.pace import LEAST_BYTES, Pace

FORWARDS_AT_ONCE: Final = 32  # asked for and waiting: each may become a MiB of memory
LINE_AT_ONCE: Final = 2  # of these, that one node is asked for
# In which all who ask have a piece: asking through a relay takes six round trips, half a second.
ROUND_SECONDS: Final = 3.0


@dataclass(slots=True)
class Line:
    """Of one node that is asked; for one event loop."""

    pace: Pace = field(default_factory=lambda: Pace(ROUND_SECONDS))
    queue: FairQueue = field(default_factory=FairQueue)
    under_way: list[Waiting] = field(default_factory=list)  # whose turn has come

    async def ask(self, asker: Address, wanted: Piece, send: Callable[[Piece], Awaitable[bytes]]) -> bytes:
        """What `send` answers to `wanted`, or to as much of it as the line sends in time, once its turn comes."""
        async with self._turn(asker):
            began, answer = asyncio.get_running_loop().time(), b""
            try:
                answer = await send(replace(wanted, length=min(wanted.length, self._share())))
            finally:
                self.pace.came(len(answer), asyncio.get_running_loop().time() - began)
            return answer

    @asynccontextmanager
    async def _turn(self, asker: Address) -> AsyncIterator[None]:
        waiting = self.queue.join(asker)
        try:
            self._settle()
            await waiting.turn
            yield
        finally:
            self.queue.leave(waiting)
            if waiting in self.under_way:
                self.under_way.remove(waiting)
            self._settle()

    def _settle(self) -> None:
        while len(self.under_way) < LINE_AT_ONCE and (waiting := self.queue.next()) is not None:
            self.under_way.append(waiting)

    def _share(self) -> int:
        """Bytes of the next piece, at most: with two of the line's pace at once, all have theirs in a round."""
        askers = self.queue.owners | {each.owner for each in self.under_way}
        return max(LEAST_BYTES, LINE_AT_ONCE * self.pace.size // max(LINE_AT_ONCE, len(askers)))


@dataclass(slots=True)
class Forwards:
    """Of one node, for one event loop."""

    places: Crowd = field(default_factory=lambda: Crowd(FORWARDS_AT_ONCE, newest_goes=True))
    lines: "OrderedDict[Address, Line]" = field(default_factory=OrderedDict)  # the longest unasked is forgotten first

    def line(self, target: Address) -> Line:
        """Of `target`, which is connected here."""
        line = self.lines.setdefault(target, Line())
        self.lines.move_to_end(target)
        if len(self.lines) > MAX_NODES:
            self.lines.popitem(last=False)
        return line
