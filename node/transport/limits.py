"""How much of this node one stranger, and all together, may take. Counted per address, in bounded memory."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAX_REMEMBERED = 4096  # addresses whose rate is remembered; the longest unseen is forgotten first


@dataclass(frozen=True, slots=True)
class Limits:
    """Per address: a sustained rate with a burst, requests and connections at once. Times in seconds.

    The rate is for chunks of 4 MiB at a gigabyte a second, so that only floods meet it; `request_seconds` is the whole
    of a request: reading it, a long poll of 30 s, and sending 4 MiB at 50 kB/s.
    """

    requests_per_second: float = 250.0
    burst: int = 1000
    requests_per_address: int = 256
    requests: int = 1024
    connections_per_address: int = 256
    connections: int = 1024
    idle_seconds: float = 30.0
    request_seconds: float = 120.0


class TooMany(Exception):
    """A request over a limit; `retry_seconds` from now it may pass."""

    def __init__(self, status: int, detail: str, retry_seconds: float) -> None:
        super().__init__(detail)
        self.status = status
        self.retry_seconds = retry_seconds


class Gate:
    """Counts requests by address. For one event loop; not for threads."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address: (tokens, when)
        self._active: Counter[str] = Counter()

    @contextmanager
    def request(self, address: str) -> Iterator[None]:
        """Counts one request of `address` while it is worked on. Raises: TooMany."""
        self._take(address)
        if self._active.total() >= self._limits.requests:
            raise TooMany(503, "this node is busy", 1.0)
        if self._active[address] >= self._limits.requests_per_address:
            raise TooMany(429, f"more than {self._limits.requests_per_address} requests at once", 1.0)
        self._active[address] += 1
        try:
            yield
        finally:
            self._active[address] -= 1
            if not self._active[address]:
                del self._active[address]

    def _take(self, address: str) -> None:
        now, limits = self._now(), self._limits
        tokens, before = self._tokens.pop(address, (float(limits.burst), now))
        tokens = min(limits.burst, tokens + (now - before) * limits.requests_per_second)
        self._tokens[address] = (max(tokens - 1, 0.0), now)
        if len(self._tokens) > MAX_REMEMBERED:
            self._tokens.popitem(last=False)
        if tokens < 1:
            wait = (1 - tokens) / limits.requests_per_second
            raise TooMany(429, f"more than {limits.requests_per_second:g} requests a second", wait)
