"""Which source is asked next: drawn with P ~ success rate x bandwidth, those that lied not for a day.

Time-outs lower the success rate and never count as bandwidth; a rate never falls to nothing, and heals with time
rather than with the number of others' downloads, so that there is always somebody to draw.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ledger.base import Address
from node.bans import Bans
from node.shards.announcers import Announcers

SMOOTHING = 0.3  # of both moving averages
LEAST_SUCCESS = 0.02
HEAL_SECONDS = 300.0  # a failed source regains 63% of what it lost
FIRST_PAUSE_SECONDS = 0.25  # after a failure, doubled with each further one in a row
MAX_PAUSE_SECONDS = 15.0
DECLINED_SECONDS = 600.0  # before a source that serves no weights is asked again: it may have been begun anew
SLOWER = 8.0  # times the seconds that a source's chunks took it: more than a busy line varies
MEASURED_BYTES = 256 << 10  # a smaller answer shows the round trip, not the bandwidth
FIRST_BANDWIDTH = 1e6  # bytes a second, of the first source of all
MAX_SOURCES = 4096  # remembered; the longest unused is forgotten first


@dataclass(slots=True)
class _Record:
    success: float = 1.0
    measured_at: float = 0.0
    bandwidth: float | None = None  # bytes a second
    failures: int = 0  # in a row
    paused_until: float = -math.inf
    last_error: str = ""


class Selection:
    """What is known of sources, by their URL."""

    def __init__(self, rng: random.Random, now: Callable[[], float], bans: Bans | None = None) -> None:
        self._rng = rng
        self._now = now
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._bans = bans or Bans()
        self._announcers = Announcers(self._bans, now)

    @property
    def banned(self) -> dict[str, str]:
        """Why, by source."""
        return self._bans.reasons

    def of_nodes(self, announced: Iterable[tuple[Address, str]]) -> tuple[str, ...]:
        """The URLs of nodes none of whose URLs is banned. A node is banned with the one that it has just now."""
        return self._announcers.urls(announced)

    def usable(self, sources: Collection[str]) -> list[str]:
        """Those neither banned nor pausing after a failure."""
        now = self._now()
        return [each for each in sources if each not in self._bans and self._record(each).paused_until <= now]

    def choose(self, sources: Collection[str]) -> str | None:
        """One of the usable `sources`; None if there is none."""
        usable = self.usable(sources)
        if not usable:
            return None
        return self._rng.choices(usable, [self.weight(each) for each in usable])[0]

    def try_one(self, sources: Sequence[str]) -> str | None:
        """As `choose`; but every second time of the proven ones alone or, while none is, the one that stands first.

        However many come that nobody knows, those that have served are asked as often as all of them together; and
        those that stand first are hardest to pose as.
        """
        usable = self.usable(sources)
        trusted = [each for each in usable if self.proven(each)] or usable[:1]
        return self.choose(trusted if self._rng.random() < 0.5 else usable)

    def proven(self, source: str) -> bool:
        """Whether it has sent a chunk, and has not failed since."""
        record = self._record(source)
        return record.bandwidth is not None and record.failures == 0

    def longest_seconds(self, source: str, count: int) -> float:
        """How long `count` bytes may take `source`, going by what it has sent."""
        return SLOWER * count / (self._record(source).bandwidth or self._mean_bandwidth())

    def fastest(self) -> float:
        """Bytes a second, of the fastest source that was measured; 0 where none was."""
        return max((record.bandwidth or 0.0 for record in self._records.values()), default=0.0)

    def few(self, sources: Sequence[str], most: int) -> list[str]:
        """At most `most` usable `sources`, to ask at once: half of them proven ones as far as there are such.

        Of the others those that stand first and as many drawn: however many come that nobody knows, those at the head
        are asked.
        """
        usable = self.usable(sources)
        known = [each for each in usable if self.proven(each)]
        unknown = [each for each in usable if not self.proven(each)]
        chosen = self._rng.sample(known, min(len(known), max(most // 2, most - len(unknown))))
        left = most - len(chosen)
        head, rest = unknown[: (left + 1) // 2], unknown[(left + 1) // 2 :]
        return [*chosen, *head, *self._rng.sample(rest, min(left - len(head), len(rest)))]

    def shuffled(self, numbers: Sequence[int]) -> list[int]:
        """In an order of this node's own."""
        return self._rng.sample(numbers, len(numbers))

    def weight(self, source: str) -> float:
        """Success rate x bandwidth; an unmeasured bandwidth counts as the mean of the measured ones. Above 0."""
        record = self._record(source)
        return self._success(record) * (record.bandwidth or self._mean_bandwidth())

    def succeeded(self, source: str, count: int, seconds: float) -> None:
        """`count` bytes came in `seconds`, without the time that the source was waiting for them itself."""
        record = self._record(source)
        if count >= MEASURED_BYTES:
            measured = count / max(seconds, 1e-6)
            before = measured if record.bandwidth is None else record.bandwidth
            record.bandwidth = before + SMOOTHING * (measured - before)
        self._rate(record, 1.0)
        record.failures = 0

    def failed(self, source: str, error: str) -> None:
        """It was down, slow, or broke off; it pauses for a while."""
        record = self._record(source)
        self._rate(record, 0.0)
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(record.failures, 16), MAX_PAUSE_SECONDS)
        record.failures += 1
        record.paused_until = self._now() + pause
        record.last_error = error[:200]

    def lacks(self, source: str, seconds: float = 0.0) -> None:
        """It answered after `seconds` that it does not have it: no fault, but others come first for a moment.

        One that waited so long for it itself can be asked again at once.
        """
        record = self._record(source)
        record.paused_until = self._now() + max(FIRST_PAUSE_SECONDS - seconds, 0.0)
        record.last_error = "does not have it"

    def declined(self, source: str) -> None:
        """It answered that it serves no weights: it is left alone for long."""
        record = self._record(source)
        record.paused_until = self._now() + DECLINED_SECONDS
        record.last_error = "serves no weights"

    def ban(self, source: str, reason: str) -> None:
        """It served wrong bytes. Exact blame: each answer is one source's, and who announced it said where to ask."""
        self._announcers.ban(source, reason)

    def account(self, sources: Collection[str]) -> str:
        """What became of each, for an error message."""
        banned = self.banned
        lines = [f"{each}: {banned.get(each) or self._record(each).last_error or 'not asked'}" for each in sources]
        return "; ".join(lines[:16]) or "there are no sources"

    def _record(self, source: str) -> _Record:
        record = self._records.setdefault(source, _Record(measured_at=self._now()))
        self._records.move_to_end(source)
        if len(self._records) > MAX_SOURCES:
            self._records.popitem(last=False)
        return record

    def _success(self, record: _Record) -> float:
        healed = 1 - (1 - record.success) * math.exp((record.measured_at - self._now()) / HEAL_SECONDS)
        return max(healed, LEAST_SUCCESS)

    def _rate(self, record: _Record, outcome: float) -> None:
        success = self._success(record)
        record.success = success + SMOOTHING * (outcome - success)
        record.measured_at = self._now()

    def _mean_bandwidth(self) -> float:
        measured = [record.bandwidth for record in self._records.values() if record.bandwidth is not None]
        return sum(measured) / len(measured) if measured else FIRST_BANDWIDTH
