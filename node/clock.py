"""Time as roles see it: one seam, so that tests never wait for a wall clock."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, and a sleep that a test can end at once."""

    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
