"""Taking the time of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from .figures import spread

SETTLE_SECONDS = 0.3  # for threads of the other process that wait in a loop for more work
Found = TypeVar("Found")


def timed(run: Callable[[], Found]) -> tuple[float, Found]:
    """Seconds of `run`, after the machine has come to rest; and what it found."""
    time.sleep(SETTLE_SECONDS)
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def rate(tokens: int, seconds: Sequence[float]) -> float:
    """Tokens a second, of the median run."""
    return tokens / spread(seconds).median
