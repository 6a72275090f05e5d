"""Slots in the making: the one that is waited for and, where an engine takes more than one at once, the one after it.

So the last rows of a slot do not leave the engine idle.
"""

import asyncio
from dataclasses import dataclass

from node.roles.making import Maker, Work
from node.rollouts.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Begun:
    """An assignment that is being made."""

    assignment: Assignment
    task: asyncio.Task[Work]


@dataclass(slots=True)
class Pipeline:
    """What `maker` makes ahead of what is waited for: one slot or none."""

    maker: Maker
    _ahead: Begun | None = None

    @property
    def ahead(self) -> Assignment | None:
        return None if self._ahead is None else self._ahead.assignment

    @property
    def takes_more(self) -> bool:
        """Whether another slot may be begun now, ahead of the one that was taken."""
        return self._ahead is None and self.maker.at_once > 1

    def take(self, assignment: Assignment) -> Begun:
        """`assignment`, begun now unless it was begun ahead."""
        if self._ahead is None or self._ahead.assignment != assignment:
            return self._begin(assignment)
        taken, self._ahead = self._ahead, None
        return taken

    def begin_ahead(self, assignment: Assignment) -> None:
        self._ahead = self._begin(assignment)

    async def drop_ahead(self) -> None:
        """Gives up what was begun ahead, whatever became of it."""
        if self._ahead is not None:
            dropped, self._ahead = self._ahead, None
            dropped.task.cancel()
            await asyncio.gather(dropped.task, return_exceptions=True)

    def _begin(self, assignment: Assignment) -> Begun:
        return Begun(assignment, asyncio.create_task(self.maker.make(assignment)))
