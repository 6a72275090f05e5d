"""How fast this process uploads, all its answers and files together: whose bytes leave next, and when.

Without a limit nothing waits. With one, whoever has something to send waits for a turn: all who share the uplink are
given as many bytes, and what is for one of them over several connections takes turns among itself, so that many
connections are worth no more than one.
"""

import asyncio

from node.buckets import Bucket
from node.fair_queue import FairQueue
from node.transport.limits import LEAST_BYTES_PER_SECOND
from node.transport.places import Places

PIECE_SECONDS = 0.005  # of the whole uplink that one turn takes: below what a timer is late
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 16 << 10, 1 << 20
CATCH_UP_SECONDS = 0.1  # of idle time, or of a busy event loop, that may be made up for
LEAST_FILES = 2  # at once, however slow the uplink is: one reader that stalls must not be the only one


class Uplink:
    """For one event loop; not for threads."""

    def __init__(self, bytes_per_second: float | None = None, places: Places | None = None) -> None:
        """`places` for files on their way: if None, so many that each is sent `LEAST_BYTES_PER_SECOND`."""
        self._line = None if bytes_per_second is None else Bucket(bytes_per_second, bytes_per_second * CATCH_UP_SECONDS)
        self.places = places or Places(_files_at_once(bytes_per_second))
        self.sent_bytes = 0  # of files, since this process began
        self._queue = FairQueue()
        self._timer: asyncio.Handle | None = None

    @property
    def bytes_per_second(self) -> float | None:
        return None if self._line is None else self._line.rate

    @property
    def piece_bytes(self) -> int:
        """How much to ask for in one turn."""
        rate = self.bytes_per_second
        return MOST_PIECE_BYTES if rate is None else _within(LEAST_PIECE_BYTES, rate * PIECE_SECONDS, MOST_PIECE_BYTES)

    async def turn(self, sharer: str, size: int) -> None:
        """Returns when `size` bytes more may leave.

        Args:
            sharer: whom they count for: the address of who is served, the URL of who is handed something, or the name
                of a libp2p node, whose streams have no address.
        """
        if self._line is None:
            return
        waiting = self._queue.join(sharer, size)
        try:
            self._let_go(self._line)
            await waiting.turn
        finally:
            self._queue.leave(waiting)

    def _let_go(self, line: Bucket) -> None:
        """One at a time: who was given its turn may want the next one, too, before others have what is made up for."""
        if not self._queue.owners or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if wait := line.seconds_until(0):
            self._timer = loop.call_later(wait, self._on_time, line)
            return
        if (next_one := self._queue.next()) is not None:
            line.overdraw(next_one.size)
        self._timer = loop.call_soon(self._on_time, line)

    def _on_time(self, line: Bucket) -> None:
        self._timer = None
        self._let_go(line)


def _files_at_once(bytes_per_second: float | None) -> int | None:
    return None if bytes_per_second is None else max(LEAST_FILES, int(bytes_per_second / LEAST_BYTES_PER_SECOND))


def _within(least: int, value: float, most: int) -> int:
    return max(least, min(int(value), most))
