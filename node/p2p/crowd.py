"""So much at once for all nodes together: where it is full, who has most under way gives way to who has less."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ledger.base import Address
from node.errors import NotFound


@dataclass(slots=True)
class Crowd:
    """For one event loop."""

    most: int
    under_way: dict[asyncio.Timeout, Address] = field(default_factory=dict)  # who came first is first

    @asynccontextmanager
    async def place(self, asker: Address) -> AsyncIterator[None]:
        """While the block runs, which may be ended for another's. Raises: NotFound: it was, or there is no room."""
        if len(self.under_way) >= self.most and not self._made_room(asker):
            raise NotFound("too much at once")
        try:
            async with asyncio.timeout(None) as ending:
                self.under_way[ending] = asker
                try:
                    yield
                finally:
                    self.under_way.pop(ending, None)
        except TimeoutError as error:
            raise NotFound("it took too long, or others ask who have less") from error

    def _made_room(self, asker: Address) -> bool:
        """Whether the newest has gone of who has most, which is two more than `asker` at least: else they would take
        it from each other in turn."""
        held = Counter(self.under_way.values())
        ((greedy, most),) = held.most_common(1)
        if most < held[asker] + 2:
            return False
        newest = next(ending for ending, who in reversed(self.under_way.items()) if who == greedy)
        del self.under_way[newest]
        newest.reschedule(asyncio.get_running_loop().time())
        return True
