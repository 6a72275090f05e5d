"""Which files are on their way, served or handed over: only so many at once that each gets on.

One that is sent too slowly is given up by whoever is to have it, and was sent in vain. How fast they are sent is the
uplink's.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from node.fair_queue import FairQueue

PLACE_SECONDS = 10.0  # that a file which is asked for waits for its place: another node can be asked then
LEASE_SECONDS = 42.0  # that a place is kept from those who wait: what a chunk of 4 MiB takes at the least rate
STALL_SECONDS = 2.0  # after which a reader that takes nothing holds no place any more


class Places:
    """For one event loop; not for threads."""

    def __init__(
        self,
        most: int | None = None,
        *,
        place_seconds: float = PLACE_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """`most` at once, any number if None. The others: how long a file that was asked for is to wait for a place,
        and how long one keeps it whose reader takes nothing, and from those who wait."""
        self.most, self.place_seconds = most, place_seconds
        self.stall_seconds, self.lease_seconds = stall_seconds, lease_seconds
        self._taken = 0
        self._leases: dict[Lease, None] = {}  # the oldest first
        self._queue = FairQueue()
        self._timer: asyncio.TimerHandle | None = None  # for the oldest lease, while somebody waits

    async def take(self, sharer: str) -> "Lease":
        """For one file while it is sent; waited for without end, unless that is cancelled.

        Args:
            sharer: whom it counts for, as in `Uplink.turn`.
        """
        if self.most is None or self._taken < self.most:
            self._taken += 1
        else:
            await self._wait(sharer)
        lease = Lease(self, asyncio.get_running_loop().time() + self.lease_seconds)
        self._leases[lease] = None
        if self._timer is None:
            self._end_old_leases()
        return lease

    def leave(self, lease: "Lease") -> None:
        del self._leases[lease]
        self._give_place()

    async def _wait(self, sharer: str) -> None:
        waiting = self._queue.join(sharer)
        try:
            self._end_old_leases()
            await waiting.turn
        except asyncio.CancelledError:
            self._queue.leave(waiting)
            if not waiting.turn.cancelled():  # it was given one, and does not live to see it
                self._give_place()
            raise

    def _give_place(self) -> None:
        """One that was taken: to whoever waits longest, of the sharer whose turn it is."""
        if self._queue.next() is None:
            self._taken -= 1

    def _end_old_leases(self) -> None:
        """Whoever has had a place for long enough goes on without it, where somebody waits: slow readers of large
        files would keep all others from it."""
        loop = asyncio.get_running_loop()
        while (ends := self._oldest_ends()) is not None and ends <= loop.time():
            next(iter(self._leases)).give_up()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if ends is None else loop.call_at(ends, self._end_old_leases)

    def _oldest_ends(self) -> float | None:
        """When the oldest lease does; None where there is none, or nobody waits for its place."""
        return next(iter(self._leases)).until if self._leases and self._queue.owners else None


class Lease:
    """Of a place: what a file on its way holds, until its end, or until its reader takes nothing, or for so long that
    it is others' turn."""

    def __init__(self, places: Places, until: float) -> None:
        """`until`: when it goes to others who wait, by the loop's clock."""
        self._places: Places | None = places
        self._stall_seconds, self.until = places.stall_seconds, until

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_up()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While a piece leaves: the place is given up where that takes its reader too long."""
        stalled = asyncio.get_running_loop().call_later(self._stall_seconds, self.give_up)
        try:
            yield
        finally:
            stalled.cancel()

    def give_up(self) -> None:
        if self._places is not None:
            places, self._places = self._places, None
            places.leave(self)
