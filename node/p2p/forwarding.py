"""What a node hands on between others that cannot connect: whose turn it is at the line of the one who is asked.

A line sends two pieces at once: one is on its way while the next one is asked for. The next turn is of whoever has been
given fewest bytes, so that who asks for large pieces, or for many files, has no more of a line than who does not. No
piece is larger than what the line sends in three seconds, in which all who ask are to have one. Who never answers keeps
nobody from another's line.

Source of the order: Goyal, Vin, Cheng, "Start-time fair queuing", 1996.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from ledger.base import Address
from node.crowd import Crowd
from node.p2p.content import Piece
from node.p2p.limits import MAX_NODES
from node.p2p.pace import LEAST_BYTES, Pace

FORWARDS_AT_ONCE: Final = 32  # asked for and waiting: each may become a MiB of memory
LINE_AT_ONCE: Final = 2  # of these, that one node is asked for
ROUND_SECONDS: Final = (
    3.0  # in which all who ask have a piece: asking through a relay takes six round trips, half a second
)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    asker: Address
    length: int
    come: asyncio.Future[int]  # of how many bytes it is


@dataclass(slots=True)
class Line:
    """Of one node that is asked; for one event loop."""

    pace: Pace = field(default_factory=lambda: Pace(ROUND_SECONDS))
    under_way: list[Turn] = field(default_factory=list)
    waiting: list[Turn] = field(default_factory=list)  # who came first is first
    given: dict[Address, int] = field(default_factory=dict)  # bytes, with what others had who came earlier
    least: int = 0  # of these, for whoever comes now: nobody saves up turns that it did not ask for

    async def ask(self, asker: Address, wanted: Piece, send: Callable[[Piece], Awaitable[bytes]]) -> bytes:
        """What `send` answers to `wanted`, or to as much of it as the line sends in time, once its turn comes."""
        async with self._turn(asker, wanted.length) as turn:
            began, answer = asyncio.get_running_loop().time(), b""
            try:
                answer = await send(replace(wanted, length=await turn.come))
            finally:
                self.pace.came(len(answer), asyncio.get_running_loop().time() - began)
            return answer

    @asynccontextmanager
    async def _turn(self, asker: Address, length: int) -> AsyncIterator[Turn]:
        turn = Turn(asker, length, asyncio.get_running_loop().create_future())
        self.waiting.append(turn)
        try:
            self._settle()
            await turn.come
            yield turn
        finally:
            (self.waiting if turn in self.waiting else self.under_way).remove(turn)
            self._settle()

    def _settle(self) -> None:
        while self.waiting and len(self.under_way) < LINE_AT_ONCE:
            turn = min(self.waiting, key=lambda each: self._start(each.asker))
            length = min(turn.length, self._share())
            self.waiting.remove(turn)
            self.under_way.append(turn)
            self.least = self._start(turn.asker)
            self.given[turn.asker] = self.least + length
            self.given = {asker: given for asker, given in self.given.items() if given > self.least}
            if not turn.come.done():
                turn.come.set_result(length)

    def _start(self, asker: Address) -> int:
        return max(self.least, self.given.get(asker, 0))

    def _share(self) -> int:
        """Bytes of the next piece, at most: with two of the line's pace at once, all have theirs in a round."""
        askers = len({turn.asker for turn in (*self.waiting, *self.under_way)})
        return max(LEAST_BYTES, LINE_AT_ONCE * self.pace.size // max(LINE_AT_ONCE, askers))


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
