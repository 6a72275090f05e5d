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
        if self.seconds_until(count):
            return False
        self.tokens -= count
        return True

    def seconds_until(self, count: float = 1.0) -> float:
        """Seconds until there are `count` tokens; none is taken."""
        self._fill()
        return max(0.0, (count - self.tokens) / self.rate)

    def overdraw(self, count: float = 1.0) -> float:
        """Takes `count` tokens in any case; the seconds until what was taken too much is there again."""
        self._fill()
        self.tokens -= count
        return self.seconds_until(0.0)

    def _fill(self) -> None:
        now = self.now()
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self.filled) * self.rate)  # clocks are set back
        self.filled = now


@dataclass(slots=True)
class Rates:
    """A bucket for each of `most` who took something lately, by name: connections end, what they took stays."""

    rate: float
    burst: float
    most: int = MAX_REMEMBERED
    now: Callable[[], float] = time.monotonic
    buckets: "OrderedDict[str, Bucket]" = field(default_factory=OrderedDict)

    def of(self, who: str) -> Bucket:
        """Of whom took nothing for longest, nothing is remembered where there is no room."""
        if who not in self.buckets:
            self.buckets[who] = Bucket(self.rate, self.burst, self.now)
        self.buckets.move_to_end(who)
        if len(self.buckets) > self.most:
            self.buckets.popitem(last=False)
        return self.buckets[who]
