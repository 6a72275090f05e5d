"""Which missing chunk is asked for next, and of whom.

From a single source chunks are asked for in order, by long poll, so that a chain of nodes moves in step. With several,
what they say they have is known from their bitmaps. Those that lack some themselves receive at the same time: what only
whole sources have is shared out among them and this node (`parts`), each fetches its own part and hands it on, so
that the origin sends everything about once.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from node.shards.bitmaps import has
from node.shards.parts import Parts
from node.shards.selection import Selection
from node.shards.wanted import Flight, Kind, Pace, Wanted

UNPROVEN_AT_ONCE = 2  # requests, of `Pace.parallel`, once somebody has sent a chunk: strangers may all stall
DRAWN_FROM = 8  # unproven sources at a time


@dataclass(slots=True)
class Exchange:
    """Of one checkpoint. `missing` is its user's, who takes out what has come."""

    missing: dict[int, Wanted]
    parts: Parts
    selection: Selection
    sources: Callable[[], Sequence[str]]
    now: Callable[[], float]
    pace: Pace
    flying: set[Flight] = field(default_factory=set)  # at most `pace.parallel`
    _lists: dict[Kind, list[int]] = field(default_factory=dict)  # the next one last
    _unasked: list[int] = field(default_factory=list)  # a heap, for a single source
    _sorted_at: float = -math.inf

    def __post_init__(self) -> None:
        self._unasked = sorted(self.missing)

    def see(self, bitmaps: dict[str, bytes]) -> None:
        """Takes in what sources say they have."""
        self.parts.see(bitmaps)
        self._sort()

    def next(self) -> Flight | None:
        """A request, which counts as flying until `ended`; None where nobody can be asked for anything now."""
        everybody = self.sources()
        usable = self.selection.usable(everybody)
        flight = self._in_order(usable) if len(everybody) == 1 else self._of_many(usable)
        if flight is not None:
            self.flying.add(flight)
        return flight

    def ended(self, flight: Flight) -> None:
        """Whatever came of it."""
        self.flying.discard(flight)
        if flight.number in self.missing and flight.number not in self._asked_for():
            heapq.heappush(self._unasked, flight.number)

    def overdue(self) -> list[Flight]:
        """Requests to give up, because others can be asked: a source that sent chunks, or was the only one, may stall.

        Of a proven source, what takes far longer than its chunks took before; of another, all but its oldest request.
        Without this a source that sent one chunk holds up every worker for as long as one request may take.
        """
        usable = set(self.selection.usable(self.sources()))
        spared: set[str] = set()
        overdue = []
        for flight in self._oldest_first():
            late = self.now() - flight.since - self.pace.late_seconds - self.pace.brief_wait_seconds
            if self.selection.proven(flight.source):
                late -= self.selection.longest_seconds(flight.source, flight.wanted.length)
            elif flight.source not in spared:
                spared.add(flight.source)
                continue
            if late > 0 and usable - {flight.source}:
                overdue.append(flight)
        return overdue

    def arriving_bytes(self) -> int:
        """Of missing chunks, what is here and not yet verified: of one that is asked for twice, the larger part."""
        came: dict[int, int] = {}
        for flight in self.flying:
            if flight.number in self.missing:
                came[flight.number] = max(came.get(flight.number, 0), flight.arriving.count)
        return sum(came.values())

    # --- What is next

    def _in_order(self, usable: list[str]) -> Flight | None:
        source = self.selection.choose(usable)
        number = None if source is None else self._taken(self._unasked, heapq.heappop)
        return None if source is None or number is None else self._flight(number, source, Kind.UNSEEN, alone=True)

    def _of_many(self, usable: list[str]) -> Flight | None:
        flight = self._listed(usable)
        if flight is None and self.now() - self._sorted_at >= self.pace.poll_seconds:
            self._sort()
            flight = self._listed(usable)
        return flight or self._late(usable)

    def _listed(self, usable: list[str]) -> Flight | None:
        """Half the requests are for this node's own part as long as others offer theirs, so that both go on.

        What nobody can be asked for comes up again when it is sorted anew.
        """
        own = sum(flight.kind is Kind.OWN for flight in self.flying)
        first, second = (Kind.OWN, Kind.OFFERED) if own < self.pace.parallel // 2 else (Kind.OFFERED, Kind.OWN)
        for kind in (first, second, Kind.AWAITED, Kind.UNSEEN):
            while (number := self._taken(self._lists.get(kind, []), list.pop)) is not None:
                source = self.selection.try_one(self._askable(self.parts.sources(kind, number, usable)))
                if source is not None:
                    return self._flight(number, source, kind)
        return None

    def _late(self, usable: list[str]) -> Flight | None:
        for number, since in self._asked_for().items():
            if since >= self.now() - self.pace.late_seconds or number not in self.missing:
                continue
            asked = {flight.source for flight in self.flying if flight.number == number}
            others = [each for each in usable if each not in asked]
            source = self.selection.try_one(self._askable(self.parts.sources(Kind.LATE, number, others) or others))
            if source is not None:
                return self._flight(number, source, Kind.LATE)
        return None

    def _flight(self, number: int, source: str, kind: Kind, *, alone: bool = False) -> Flight:
        wait = self.pace.wait_seconds if alone else self.pace.brief_wait_seconds
        holds = has(self.parts.bitmaps.get(source, b""), number)
        return Flight(self.missing[number], source, 0 if holds else wait, kind, self.now())

    def _taken(self, numbers: list[int], take: Callable[[list[int]], int]) -> int | None:
        flying = self._asked_for()
        while numbers:
            number = take(numbers)
            if number in self.missing and number not in flying:
                return number
        return None

    def _askable(self, sources: Sequence[str]) -> list[str]:
        """The proven ones of `sources`, and unproven ones as far as they may be asked now.

        One request of each at a time until its first chunk has come: one that stalls must not hold every worker.
        """
        proven = [each for each in sources if self.selection.proven(each)]
        busy = {flight.source for flight in self.flying}
        hanging = sum(not self.selection.proven(each) for each in busy)
        if hanging >= UNPROVEN_AT_ONCE and any(map(self.selection.proven, self.sources())):
            return proven
        others = [each for each in sources if each not in busy and each not in proven]
        watched = [each for each in others if each in self.parts.bitmaps]
        unknown = [each for each in others if each not in self.parts.bitmaps]
        return [*proven, *watched, *self.selection.few(unknown, DRAWN_FROM)]

    # --- Order

    def _sort(self) -> None:
        flying = self._asked_for()
        self._lists = self.parts.sort([number for number in self.missing if number not in flying])
        self._sorted_at = self.now()

    def _asked_for(self) -> dict[int, float]:
        """The chunks in flight, and when each was last asked for, the oldest first."""
        return {flight.number: flight.since for flight in self._oldest_first()}

    def _oldest_first(self) -> list[Flight]:
        return sorted(self.flying, key=lambda flight: flight.since)
