"""Taking the time of a run: by the clock, and of the processors.

What else a machine does changes the first much more than the second, which says little where several threads wait for
one another in a loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from .figures import spread

SETTLE_SECONDS = 0.3  # for threads of the other process that wait in a loop for more work
TICKS = os.sysconf("SC_CLK_TCK")
Found = TypeVar("Found")


@dataclass(slots=True)
class Runs:
    """Seconds of each run of one thing, by the clock and of the processors."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def take(self, run: Callable[[], Found]) -> Found:
        """Notes how long `run` takes, after the machine has come to rest."""
        time.sleep(SETTLE_SECONDS)
        used, began = processor_seconds(), time.perf_counter()
        found = run()
        self.seconds.append(time.perf_counter() - began)
        self.processor.append(processor_seconds() - used)
        return found

    def rate(self, tokens: int) -> float:
        """Tokens a second, of the median run by the clock."""
        return tokens / spread(self.seconds).median


def processor_seconds() -> float:
    """What this process and all that it has started have used so far, in any of their threads."""
    return time.process_time() + sum(_used(path) for path in Path("/proc").glob("[0-9]*/stat"))


def _used(stat: Path) -> float:
    """Of a process that this one has started.

    Source: proc_pid_stat(5): fields 4, 14 and 15, after a name in brackets that may hold anything.
    """
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS if int(fields[1]) == os.getpid() else 0.0
