"""Places for what a node hands on between others that cannot connect: few, taken in turn, and not to be sat on.

Each is a MiB of memory, and whoever is asked may never answer. So one asker has few of them, and one who is asked; the
last one is for an asker that has none. Who finds none free waits a while, and whoever has fewest comes first. A place
whose asker has more than one who waits for it is given up where it has stood still for too long.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ledger.base import Address
from node.errors import NotFound
from node.p2p.content import PIECE_BYTES

FORWARDS_AT_ONCE: Final = 16
FORWARDS_PER_NODE: Final = 2  # of these, that one node asks for or waits for; one of each whom it asks
FORWARDS_PER_TARGET: Final = 4  # of these, that one node is asked for
FORWARDS_WAITING: Final = 16
WAIT_SECONDS: Final = 8.0  # for a place; the one who asks gives up after ten
STILL_SECONDS: Final = 4.0  # without an answer, where others wait: what a MiB takes a line of 260 kB/s


@dataclass(slots=True, eq=False)
class Place:
    """Of one who asks, for one who is asked; in turn while `free` is not done."""

    asker: Address
    target: Address
    free: asyncio.Future[None]
    due: float = 0.0  # when it has stood still for too long, by the loop's clock
    until: float | None = None  # when it ends for others
    asking: asyncio.Timeout | None = None

    async def answered(self, question: Awaitable[bytes]) -> bytes:
        """The answer. Raises: NotFound: it has taken too long for those who wait."""
        try:
            async with asyncio.timeout_at(self.until) as self.asking:
                return await question
        except TimeoutError as error:
            raise NotFound("others wait, and it stood still") from error
        finally:
            self.asking = None

    def end_at(self, when: float | None) -> None:
        self.until = when
        if self.asking is not None and not self.asking.expired():
            self.asking.reschedule(when)


@dataclass(slots=True)
class Forwards:
    """Of one node, for one event loop."""

    wait_seconds: float = WAIT_SECONDS
    still_seconds: float = STILL_SECONDS
    taken: list[Place] = field(default_factory=list)
    waiting: list[Place] = field(default_factory=list)  # who came first is first

    @asynccontextmanager
    async def place(self, asker: Address, target: Address) -> AsyncIterator[Place]:
        """While the block runs. Raises: NotFound: `asker` has too many, or none has become free in time."""
        place = Place(asker, target, asyncio.get_running_loop().create_future())
        has = self._count(asker, *self.taken, *self.waiting)
        if has >= FORWARDS_PER_NODE or (len(self.waiting) >= FORWARDS_WAITING and (has or not self._displaced())):
            raise NotFound("too much at once")
        self.waiting.append(place)
        try:
            self._settle()
            await self._free(place)
            yield place
        finally:
            (self.taken if place in self.taken else self.waiting).remove(place)
            self._settle()

    def got_on(self, target: Address, size: int) -> None:
        """`target` has given `size` bytes: what else it is asked for has waited for that, and does not stand still."""
        for place in self.taken:
            if place.target == target:
                place.due += self.still_seconds * size / PIECE_BYTES
        self._settle()

    def _displaced(self) -> bool:
        """Whether one has stopped waiting that is not its asker's only one, for another's first."""
        places = (*self.taken, *self.waiting)
        waiting = (one for one in reversed(self.waiting) if not one.free.done())
        last = next((one for one in waiting if self._count(one.asker, *places) > 1), None)
        if last is not None:
            last.free.set_exception(NotFound("others ask who have less"))
        return last is not None

    async def _free(self, place: Place) -> None:
        try:
            async with asyncio.timeout(self.wait_seconds):
                await place.free
        except TimeoutError as error:
            raise NotFound("too much at once, for too long") from error

    def _settle(self) -> None:
        """Gives places to those who wait, and has those end in time that somebody waits for."""
        now = asyncio.get_running_loop().time()
        while (place := self._next()) is not None:
            self.waiting.remove(place)
            self.taken.append(place)
            place.due = now + self.still_seconds
            place.free.set_result(None)
        for place in self.taken:
            place.end_at(place.due if self._is_wanted(place) else None)

    def _next(self) -> Place | None:
        fewest_first = sorted(self.waiting, key=lambda place: self._count(place.asker, *self.taken))
        return next((place for place in fewest_first if not place.free.done() and self._fits(place)), None)

    def _fits(self, place: Place) -> bool:
        of_target = [each for each in self.taken if each.target == place.target]
        return (
            self._has_room(place.asker)
            and len(of_target) < FORWARDS_PER_TARGET
            and not self._count(place.asker, *of_target)
        )

    def _has_room(self, asker: Address) -> bool:
        """The last place is for who has none."""
        return FORWARDS_AT_ONCE - len(self.taken) > (self._count(asker, *self.taken) > 0)

    def _is_wanted(self, place: Place) -> bool:
        """Whether somebody waits for it who has fewer than its asker."""
        has = self._count(place.asker, *self.taken)
        return any(
            self._count(each.asker, *self.taken) < has
            and (each.target == place.target or not self._has_room(each.asker))
            for each in self.waiting
        )

    def _count(self, asker: Address, *places: Place) -> int:
        return sum(each.asker == asker for each in places)
