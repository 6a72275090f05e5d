"""How fast this process uploads, all its answers and files together: whose bytes leave next, and when.

Without a limit nothing waits. With one, whoever has something to send waits for a turn: addresses are given as many
bytes, and what one address asks for over several connections takes turns among itself, so that many connections are
worth no more than one. Only so many files are on their way at once, served or handed over, that each gets on: one that
is sent too slowly is given up by whoever is to have it, and was sent in vain.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from node.buckets import Bucket
from node.fair_queue import FairQueue

PIECE_SECONDS = 0.005  # of the whole uplink that one turn takes: below what a timer is late
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 16 << 10, 1 << 20
CATCH_UP_SECONDS = 0.1  # of idle time, or of a busy event loop, that may be made up for
LEAST_BYTES_PER_SECOND = 100_000  # of each file on its way: 4 MiB take 42 s, of the 85 s that they are given
LEAST_FILES = 2  # at once, however slow the uplink is: one reader that stalls must not be the only one
PLACE_SECONDS = 10.0  # that a file which is asked for waits for its place: another node can be asked then
LEASE_SECONDS = 42.0  # that a place is kept from those who wait: what a chunk of 4 MiB takes at the least rate
STALL_SECONDS = 2.0  # after which a reader that takes nothing holds no place any more


class Uplink:
    """For one event loop; not for threads."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        *,
        least_bytes_per_second: float = LEAST_BYTES_PER_SECOND,
        place_seconds: float = PLACE_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """The others are bytes a second of each file, how long one that was asked for waits for a place, how long one
        keeps it whose reader takes nothing, and how long from those who wait."""
        self._line = None if bytes_per_second is None else Bucket(bytes_per_second, bytes_per_second * CATCH_UP_SECONDS)
        self.place_seconds, self.stall_seconds, self.lease_seconds = place_seconds, stall_seconds, lease_seconds
        self.sent_bytes = 0  # of files, since this process began
        self._least_bytes_per_second = least_bytes_per_second
        self._turns = FairQueue()
        self._places = FairQueue()
        self._files = 0  # that hold a place
        self._leases: dict[Lease, None] = {}  # of them, the oldest first
        self._timer: asyncio.Handle | None = None
        self._due: asyncio.TimerHandle | None = None  # when the oldest has had its place for long enough

    @property
    def bytes_per_second(self) -> float | None:
        return None if self._line is None else self._line.rate

    @property
    def piece_bytes(self) -> int:
        """How much to ask for in one turn."""
        rate = self.bytes_per_second
        return MOST_PIECE_BYTES if rate is None else _within(LEAST_PIECE_BYTES, rate * PIECE_SECONDS, MOST_PIECE_BYTES)

    @property
    def most_files(self) -> int:
        """On their way at once."""
        return max(LEAST_FILES, int((self.bytes_per_second or 0) / self._least_bytes_per_second))

    async def turn(self, address: str, size: int) -> None:
        """Returns when `size` bytes more may leave for `address`."""
        if self.bytes_per_second is None:
            return
        waiting = self._turns.join(address, size)
        try:
            self._let_go()
            await waiting.turn
        finally:
            self._turns.leave(waiting)

    async def place(self, address: str) -> "Lease":
        """For one file while it is sent; waited for without end, unless that is cancelled."""
        if self.bytes_per_second is None or self._files < self.most_files:
            self._files += 1
            return self._lease()
        waiting = self._places.join(address)
        try:
            self._pass_on()
            await waiting.turn
        except asyncio.CancelledError:
            self._places.leave(waiting)
            if not waiting.turn.cancelled():  # it was given one, and does not live to see it
                self._let_in()
            raise
        return self._lease()

    def leave(self, lease: "Lease") -> None:
        """A place has become free: it goes to whoever waits longest, of the address whose turn it is."""
        del self._leases[lease]
        self._let_in()

    def _lease(self) -> "Lease":
        lease = Lease(self, asyncio.get_running_loop().time() + self.lease_seconds)
        self._leases[lease] = None
        if self._due is None:
            self._pass_on()
        return lease

    def _let_in(self) -> None:
        if self._places.next() is None:
            self._files -= 1

    def _pass_on(self) -> None:
        """Whoever has had a place for long enough goes on without it, where somebody waits: slow readers of large
        files would keep all others from it."""
        loop = asyncio.get_running_loop()
        while self._places.owners and self._leases and (oldest := next(iter(self._leases))).until <= loop.time():
            oldest.give_up()
        if self._due is not None:
            self._due.cancel()
        waited_for = self._places.owners and self._leases
        self._due = loop.call_at(next(iter(self._leases)).until, self._pass_on) if waited_for else None

    def _let_go(self) -> None:
        """One at a time: who was given its turn may want the next one, too, before others have what is made up for."""
        line, loop = self._line, asyncio.get_running_loop()
        if line is None or not self._turns.owners or self._timer is not None:
            return
        if wait := line.seconds_until(0):
            self._timer = loop.call_later(wait, self._on_time)
            return
        if (next_one := self._turns.next()) is not None:
            line.overdraw(next_one.size)
        self._timer = loop.call_soon(self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._let_go()


class Lease:
    """Of a place: what a file on its way holds, until its end, or until its reader takes nothing, or for so long that
    it is others' turn."""

    def __init__(self, uplink: Uplink, until: float) -> None:
        """`until`: when it goes to others who wait, by the loop's clock."""
        self._uplink: Uplink | None = uplink
        self._stall_seconds, self.until = uplink.stall_seconds, until

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
        if self._uplink is not None:
            uplink, self._uplink = self._uplink, None
            uplink.leave(self)


def _within(least: int, value: float, most: int) -> int:
    return max(least, min(int(value), most))
