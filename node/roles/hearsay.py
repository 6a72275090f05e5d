"""What validators announce among peers, until it is looked at: a few of each, so that nobody takes another's place."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from ledger.base import Address
from node.p2p.announcements import Announcement, Verdicts

MAX_TOLD: Final = 16  # of one validator, of 64 KiB each; more is let go: it is asked for as well


class Hearsay:
    """For one event loop. What anybody but `validators` announces is not kept."""

    def __init__(self, validators: Iterable[Address]) -> None:
        self._told: dict[Address, deque[Verdicts]] = {who: deque() for who in validators}
        self._something = asyncio.Event()

    def put(self, said: Announcement, news: Verdicts) -> None:
        """Keeps the `news` of `said` where there is room for more of its node's."""
        told = self._told.get(said.statement.node)
        if told is not None and len(told) < MAX_TOLD:
            told.append(news)
            self._something.set()

    async def next(self) -> tuple[Address, Verdicts]:
        """Who said it, and what: the oldest of one of them, then of another."""
        while (who := next((who for who, told in self._told.items() if told), None)) is None:
            self._something.clear()
            await self._something.wait()
        told = self._told.pop(who)
        self._told[who] = told  # behind the others
        return who, told.popleft()
