"""Rates with bursts: token buckets. Source: ITU-T I.371, the generic cell rate algorithm as a leaky bucket."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_REMEMBERED = 4096  # names whose rates are remembered; the longest unseen is forgotten first


@dataclass(slots=True)
class Bucket:
    """So many tokens a second, saved up to `burst`; full at first. `now` in seconds."""

    rate: float
    burst: float
    now: Callable[[], float] = time.monotonic
    tokens: float = field(init=False)
    filled: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens, self.filled = self.burst, self.now()

    def take(self, count: float = 1.0) -> bool:
        """Whether there were `count` tokens; they are gone then."""
        if self.wait(count):
            return False
        self.tokens -= count
        return True

    def wait(self, count: float = 1.0) -> float:
        """Seconds until there are `count` tokens; none is taken."""
        self._fill()
        return max(0.0, (count - self.tokens) / self.rate)

    def debt(self, count: float = 1.0) -> float:
        """Takes `count` tokens in any case; the seconds until what was taken too much is there again."""
        self._fill()
        self.tokens -= count
        return self.wait(0.0)

    def _fill(self) -> None:
        now = self.now()
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self.filled) * self.rate)  # clocks are set back
        self.filled = now


class Buckets:
    """A bucket for each name, in bounded memory."""

    def __init__(
        self,
        rate: float,
        burst: float,
        now: Callable[[], float] = time.monotonic,
        most: int = MAX_REMEMBERED,
    ) -> None:
        self._rate, self._burst, self._now, self._most = rate, burst, now, most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()  # the longest unseen first

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, name: str) -> Bucket:
        bucket = self._buckets.get(name) or Bucket(self._rate, self._burst, self._now)
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return bucket
