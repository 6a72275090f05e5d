"""How much of this node one stranger, and all together, may take. Counted per address, in bounded memory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from node.buckets import Rates
from node.crowd import Crowd

LEAST_BYTES_PER_SECOND = 100_000  # at which a node sends each file: 4 MiB take 42 s, of the 85 s that they are given


@dataclass(frozen=True, slots=True)
class Limits:
    """Per address: sustained rates with bursts, requests and connections at once. Times in seconds.

    The rates are for chunks of 4 MiB at two gigabytes a second, more than a line of 10 Gbit/s carries, so that only
    floods meet them; `request_seconds` is for reading a request and a long poll of 30 s, and for an answer that is no
    file: whoever reads one may take nothing for `grace_seconds`, and reads `least_bytes_per_second` on the average of
    what it is given: 4 MiB have 86 s.
    """

    requests_per_second: float = 500.0
    burst: int = 2000
    bytes_per_second: float = 2.1e9  # of files
    bytes_burst: float = 8.6e9
    requests_per_address: int = 256
    requests: int = 1024
    connections_per_address: int = 256
    connections: int = 1024
    idle_seconds: float = 30.0
    request_seconds: float = 120.0
    grace_seconds: float = 20.0
    least_bytes_per_second: float = 64_000.0


class TooMany(Exception):
    """A request over a limit; `retry_seconds` from now it may pass."""

    def __init__(self, status: int, detail: str, retry_seconds: float) -> None:
        super().__init__(detail)
        self.status = status
        self.retry_seconds = retry_seconds


class Gate:
    """Counts requests and what is sent, by address. For one event loop; not for threads."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._requests = Rates(limits.requests_per_second, limits.burst, now=now)
        self._bytes = Rates(limits.bytes_per_second, limits.bytes_burst, now=now)
        self._active = Crowd(limits.requests, limits.requests_per_address)

    @contextmanager
    def request(self, address: str, end: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Counts one request of `address` while it is worked on; `end` breaks it off. Raises: TooMany."""
        limits, requests = self.limits, self._requests.of(address)
        if not requests.take():
            raise TooMany(429, f"more than {limits.requests_per_second:g} requests a second", requests.seconds_until())
        if wait := self._bytes.of(address).seconds_until(0):
            raise TooMany(429, f"more than {limits.bytes_per_second / 1e6:g} MB a second", wait)
        if self._active.has_its_most(address):
            raise TooMany(429, f"more than {limits.requests_per_address} requests at once", 1.0)
        who = object()
        if not self._active.enter(address, who, end):
            raise TooMany(503, "this node is busy", 1.0)
        try:
            yield
        finally:
            self._active.leave(address, who)

    def charge(self, address: str, size: int) -> None:
        """Counts `size` bytes that are about to be sent, however many: requests that follow wait for them."""
        self._bytes.of(address).overdraw(size)
