"""A clock for tests that say themselves how much time has passed."""


class HandClock:
    """Stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
