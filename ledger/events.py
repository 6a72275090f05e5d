"""The contracts' logs, read in ranges that endpoints answer and made the events of `ledger.base`, in chain order."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args

from pydantic.alias_generators import to_snake

from ledger import base
from ledger.base import Address, Block, RunId
from ledger.blocks import Header, Headers
from ledger.endpoints import Endpoints
from ledger.errors import Unreachable
from ledger.interfaces import interface
from ledger.logs import Filter, Log, Topics, logs_of, logs_of_block
from ledger.provider import Refused

_log = logging.getLogger(__name__)

RANGE_BLOCKS: Final = 2_000  # public endpoints take 10,000 blocks or less a request
WIDENING: Final = 9 / 8  # of a range that was answered, since trying one that is too wide costs up to a time-out
PARALLEL_HEADERS: Final = 8

OF_STAKING: Final = ("Allocated",)
OF_NO_RUN: Final = ("EndpointSet", "Claimed")
OF_RUN: Final = tuple(kind.__name__ for kind in get_args(base.Event) if kind.__name__ not in {*OF_STAKING, *OF_NO_RUN})


@dataclass(slots=True)
class Span:
    """How many blocks are asked for at once: `now`, never over `most`."""

    most: int
    width: float

    @property
    def now(self) -> int:
        return int(self.width)

    def narrow(self, tried: int) -> None:
        """After `tried` blocks were refused."""
        self.width = max(1, tried // 2)

    def widen(self) -> None:
        """After a range was answered."""
        self.width = min(self.most, self.width * WIDENING)


class EventReader:
    """Events of one deployment."""

    def __init__(self, endpoints: Endpoints, headers: Headers, coordinator: Address, staking: Address) -> None:
        self._endpoints = endpoints
        self._headers = headers
        self._coordinator = coordinator
        self._staking = staking
        self._span = Span(RANGE_BLOCKS, RANGE_BLOCKS)
        self._tip: Header | None = None  # of the last block that was read

    async def read(self, run: RunId, first_block: int, last_block: int) -> list[base.Event]:
        """See `Ledger.events`. `last_block` must exist; an endpoint that lacks it is passed over, since it would
        answer with too few events. Raises: Reorganised, where this goes on from a reading before."""
        coordinator, staking, of_run = interface("RunCoordinator"), interface("Staking"), [_topic(run)]
        filters: list[Filter] = [
            (self._coordinator, [[coordinator.topic(name) for name in OF_RUN], of_run]),
            (self._coordinator, [[coordinator.topic(name) for name in OF_NO_RUN]]),
            (self._staking, [[staking.topic(name) for name in OF_STAKING], None, of_run]),
        ]
        after = self._tip if self._tip is not None and self._tip.number == first_block - 1 else None
        logs, self._tip = await self._logs(filters, first_block, last_block, self._span, after)
        times = await self._times(logs)
        return [_event(log, times[log.block]) for log in logs]

    async def find(self, event: str, run: RunId, first_block: int, last_block: int) -> list[Log]:
        """Logs of the coordinator's `event` of `run`."""
        topics: Topics = [[interface("RunCoordinator").topic(event)], [_topic(run)]]
        blocks = max(1, last_block - first_block + 1)
        return (await self._logs([(self._coordinator, topics)], first_block, last_block, Span(blocks, blocks)))[0]

    async def _logs(
        self, filters: Sequence[Filter], first_block: int, last_block: int, span: Span, after: Header | None = None
    ) -> tuple[list[Log], Header | None]:
        """Logs that pass one of `filters`, of blocks that follow `after`, and the header of the last one.

        A range that is refused is halved until it is a single block, and that is read transaction by transaction, so
        that nothing in it is left out.
        """
        logs: list[Log] = []
        while first_block <= last_block:
            last = min(first_block + span.now - 1, last_block)
            try:
                found = await self._endpoints.ask(partial(logs_of, filters, first_block, last, after))
            except Refused as problem:
                span.narrow(last - first_block + 1)
                if first_block < last:
                    continue
                _log.info("reading block %d by its transactions: %s", last, problem)
                found = await self._endpoints.ask(partial(logs_of_block, filters, last, after))
            else:
                span.widen()
            logs += found.logs
            first_block, after = last + 1, found.last
        return logs, after

    async def _times(self, logs: Sequence[Log]) -> dict[int, int]:
        """Timestamps of the blocks of `logs`."""
        times = {log.block: log.time for log in logs if log.time is not None}
        hashes = {log.block: log.block_hash for log in logs if log.block not in times}
        limit = asyncio.Semaphore(PARALLEL_HEADERS)

        async def read(number: int) -> None:
            async with limit:
                header = await self._headers.require(number)
            if header.hash != hashes[number]:
                raise Unreachable(f"block {number} was replaced while its logs were read")
            times[number] = header.time

        await asyncio.gather(*(read(number) for number in hashes))
        return times


def _topic(run: RunId) -> str:
    return f"0x{run:064x}"


def _event(log: Log, time: int) -> base.Event:
    """`base` has a type for each event that is asked for, by its name, with its operands by their names."""
    values = {to_snake(name): value for name, value in log.operands.items()}
    if log.event == base.SlashExecuted.__name__:
        values["transaction"] = log.transaction
    event: base.Event = getattr(base, log.event)(Block(log.block, time), **values)
    return event
