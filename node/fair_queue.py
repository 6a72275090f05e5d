"""Whose turn it is among many who want something: of whoever has been given least, and who came first among those.

Nobody saves up turns that it did not ask for: who comes begins with as much as the last one had whose turn it was.

Source: Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from itertools import count

MOST_REMEMBERED = 4096  # owners; beyond, those who do not wait begin anew when they come


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    owner: str
    size: int
    number: int  # who came first has the lowest
    turn: asyncio.Future[None]


class FairQueue:
    """For one event loop; not for threads."""

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[Waiting, None]] = {}  # who came first is first
        self._given: dict[str, int] = {}  # to an owner, and what others had before it came
        self._least = 0  # of it, for whoever comes now
        self._numbers = count()

    @property
    def owners(self) -> Set[str]:
        """That wait."""
        return self._waiting.keys()

    def join(self, owner: str, size: int = 1) -> Waiting:
        """Await its `turn`, and `leave` in any case: of no effect once it has come."""
        waiting = Waiting(owner, size, next(self._numbers), asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, OrderedDict())[waiting] = None
        self._given[owner] = max(self._given.get(owner, 0), self._least)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        owner = waiting.owner
        of_owner: dict[Waiting, None] = self._waiting.get(owner, OrderedDict())
        of_owner.pop(waiting, None)
        if not of_owner and self._waiting.pop(owner, None) is not None and self._given[owner] <= self._least:
            del self._given[owner]  # as if it had never come

    def next(self) -> Waiting | None:
        """Whose turn has come; None where nobody waits. Who was cancelled is passed over."""
        while self._waiting:
            owner = min(self._waiting, key=self._rank)
            waiting = next(iter(self._waiting[owner]))
            cancelled = waiting.turn.cancelled()
            if not cancelled:
                self._give(waiting)
            self.leave(waiting)
            if not cancelled:
                return waiting
        return None

    def _rank(self, owner: str) -> tuple[int, int]:
        return self._given[owner], next(iter(self._waiting[owner])).number

    def _give(self, waiting: Waiting) -> None:
        self._least = self._given[waiting.owner]
        self._given[waiting.owner] += waiting.size
        if len(self._given) > MOST_REMEMBERED:
            self._given = {owner: given for owner, given in self._given.items() if owner in self._waiting}
        waiting.turn.set_result(None)
