"""How much to ask for at once over a line that nobody knows: what it sends in a few seconds.

A piece that is too large is in the way of what others wait for, and given up before it is whole; one that is too small
is asked for longer than it is sent.
"""

from dataclasses import dataclass
from typing import Final

from node.p2p.limits import MIB

MOST_BYTES: Final = MIB
LEAST_BYTES: Final = 64 << 10  # a line of 100 kB/s, and each of seven who ask for as much at once, has it in 5 s
GROWTH: Final = 4  # at most, from one piece to the next: the first ones of a line may be in its buffers at once


@dataclass(slots=True)
class Pace:
    """Of one line, by the pieces that have come."""

    seconds: float  # that a piece is to take
    size: int = LEAST_BYTES  # of the next one, at most

    def came(self, size: int, seconds: float) -> None:
        """A piece of `size` bytes took so long, from when it was asked for; of none, that it was waited for in vain.

        One below the least says nothing of a line, and one in vain little: whoever asked may have left, or another's
        piece was before it.
        """
        if 0 < size < LEAST_BYTES:
            return
        fitting = int(size * self.seconds / max(seconds, 1e-3)) if size else self.size // 2
        if seconds < self.seconds:  # a small one says of how much would be too much as little as of how much would not
            fitting = max(fitting, self.size)
        self.size = max(LEAST_BYTES, min(fitting, GROWTH * self.size, MOST_BYTES))
