"""Reads the chain on into a run's record, and believes no endpoint more than the others.

Events that do not fit together, or not to the contract's state, are read anew from the beginning: one was made up, or
left out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ledger.base import (
    UNDECIDED,
    Address,
    CheckpointPublished,
    Convicted,
    Digest,
    Event,
    Expired,
    Ledger,
    Reported,
    RunEnded,
    Settled,
    SlashExecuted,
    Submitted,
    Version,
    Voided,
)
from ledger.errors import Contradicted, Unreachable
from node.clock import Clock, SystemClock
from node.log import warn
from node.record import Record
from node.verdicts import Check

BLOCKS_AT_ONCE = 2_000  # of one reading; public RPC endpoints refuse wider ranges
COMPARE_SECONDS = 60.0  # between two looks at the contract's state
REREAD_SECONDS = 300.0  # between two readings from the beginning


class _Contradiction(Unreachable):
    """No endpoint gives what can follow what was read: one lies, or left events out."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the chain's answer is not believed: {what}. An RPC endpoint lies or leaves events out: if this lasts, "
            "start again with another --rpc"
        )


@dataclass(frozen=True, slots=True)
class _Promise:
    """What the events up to `block` have to come to, by the contract's state."""

    block: int
    checkpoints: int
    ended: bool
    open: int | None  # None where a block came while it was asked for


@dataclass(slots=True)
class Reader:
    """Of one run's `record`: `sync` reads on, and whoever has the record too sees it."""

    ledger: Ledger
    record: Record
    clock: Clock = field(default_factory=SystemClock)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _promise: _Promise | None = None
    _compared: float | None = None  # when the contract's state was looked at, monotonic
    _amiss: int = 0  # how many more were open by the contract's state, last time
    _reread: float | None = None  # when all was last read anew, monotonic
    _troubled: float | None = None  # since when nothing fits together

    async def sync(self) -> list[Event]:
        """Reads up to the last confirmed block; returns what was new. One reading at a time: no event counts twice.

        Raises:
            Unreachable: also where no endpoint's answer can be true; what was read before stays applied.
            Contradicted: that has lasted, and reading all anew has not helped.
            Reorganised: what was read before is no longer so.
        """
        async with self._turn:
            try:
                news = await self._read_on()
            except _Contradiction as lie:
                news = await self._read_anew(lie)
            self._troubled = None
            return news

    async def _read_anew(self, lie: _Contradiction) -> list[Event]:
        """Replaces what is known by a reading from the beginning, if that fits together, and at most now and then."""
        now = self.clock.monotonic()
        self._troubled = now if self._troubled is None else self._troubled
        if self._reread is not None and now - self._reread < REREAD_SECONDS:
            raise lie
        if self._reread is not None and now - self._troubled >= REREAD_SECONDS:
            raise Contradicted(str(lie)) from lie
        self._reread = now
        warn("reading the chain anew", reason=lie)
        fresh = Reader(self.ledger, Record(self.record.run), self.clock, _compared=now)
        news = [event for event in await fresh._read_on() if not self.record.knows(event)]
        self.record.become(fresh.record)
        self._promise, self._compared, self._amiss = fresh._promise, fresh._compared, fresh._amiss
        return news

    async def _read_on(self) -> list[Event]:
        head = await self.ledger.head()
        confirmed = head.number - self.ledger.confirmations
        news: list[Event] = []
        first = max(self.record.next_block, self.ledger.origin_block)
        while first <= confirmed:
            last = min(first + BLOCKS_AT_ONCE - 1, confirmed)
            events = await self._possible_events(first, last)
            for event in events:
                self.record.apply(event)
            news += events
            first = self.record.next_block = last + 1
        self.record.head = head
        await self._compare()
        return news

    async def _possible_events(self, first: int, last: int) -> list[Event]:
        """What an endpoint says that can be. Raises: _Contradiction: one lied, or left out something earlier."""
        while True:
            events = await self.ledger.events(self.record.run.id, first, last)
            lie = _first_impossible(self.record, events) or await self._made_up_end(events)
            if lie is None:
                return events
            if not self.ledger.doubt():
                raise _Contradiction(f"{lie} cannot follow what it said before")

    async def _made_up_end(self, events: Sequence[Event]) -> Event | None:
        """The run's end, where the contract knows of none: all roles leave at that word."""
        end = next((event for event in events if isinstance(event, RunEnded)), None)
        return end if end is not None and not (await self.ledger.run_state(self.record.run.id)).ended_at else None

    async def _compare(self) -> None:
        """Holds what the events come to against the contract's state. Raises: _Contradiction."""
        promise = self._promise
        if promise is not None and promise.block < self.record.next_block:
            self._promise = None
            self._require(promise)
        now = self.clock.monotonic()
        self._compared = now if self._compared is None else self._compared
        if self._promise is None and now - self._compared >= COMPARE_SECONDS:
            self._compared = now
            self._promise = await self._promised()
        if self.record.seems_over and not self.record.closed:
            state = await self.ledger.run_state(self.record.run.id)
            self.record.closed = bool(state.ended_at) and not state.open

    async def _promised(self) -> _Promise:
        before = await self.ledger.head()
        state = await self.ledger.run_state(self.record.run.id)
        block = max(self.record.head.number, (await self.ledger.head()).number)
        return _Promise(block, state.checkpoints, bool(state.ended_at), state.open if block == before.number else None)

    def _require(self, promise: _Promise) -> None:
        """Raises: _Contradiction: an event was left out, or made up."""
        if len(self.record.checkpoints) < promise.checkpoints:
            raise _Contradiction(f"it has {promise.checkpoints} versions, and told of {len(self.record.checkpoints)}")
        if promise.ended and self.record.ended is None:
            raise _Contradiction("the run has ended, and it did not tell")
        if promise.open is not None:
            before, self._amiss = self._amiss, promise.open - self.record.open_at(promise.block)
            if self._amiss and self._amiss == before:  # once may be a node that lags
                raise _Contradiction(f"{promise.open} submissions are open, {-self._amiss:+d} by what it told")


def _first_impossible(record: Record, events: Sequence[Event]) -> Event | None:
    """The first that the contract cannot have made after those before it and those that are applied."""
    versions, made, final = len(record.checkpoints), set[Digest](), set[Digest]()
    slots = dict[tuple[Version, Address], int]()
    for event in events:
        match event:
            case CheckpointPublished():
                possible = event.version == versions
                versions += 1
            case Submitted():
                place = event.version, event.node
                slot = slots.setdefault(place, len(record.commits.get(place, ())))
                known = event.commitment in made or event.commitment in record.submissions
                possible = event.version < versions and event.slot == slot and not known
                made.add(event.commitment)
                slots[place] += 1
            case Settled() | Reported() | Convicted() | Voided() | Expired() | SlashExecuted():
                known = event.commitment in made or event.commitment in record.submissions
                over = event.commitment in final or record.is_final(event.commitment)
                possible = known and not over and _has_check(event)
                if not isinstance(event, Reported | Convicted):
                    final.add(event.commitment)
            case _:
                possible = True
        if not possible:
            return event
    return None


def _has_check(event: Settled | Reported | Convicted | Voided | Expired | SlashExecuted) -> bool:
    """Whether the check that `event` names, if it names one, is one of the protocol's."""
    match event:
        case Reported() | Convicted():
            return event.check in set(Check)
        case Voided():
            return event.check == UNDECIDED or event.check in set(Check)
        case _:
            return True
