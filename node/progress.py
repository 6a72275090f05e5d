"""How far something long is, how fast it goes and how long it still takes: a live line on a terminal, a line in a log
now and then.

What is done is told from whatever thread does it; a thread of this module's looks, so that a stall shows too. The last
line, that it is done, is the caller's own event: `summary` has its fields.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from node.clock import Clock
from node.log import bytes_text, event, field_text, live, seconds_text

LINE_SECONDS: Final = 10.0  # between two lines in a log
LOOK_SECONDS: Final = 0.5  # between two looks, by the machine's clock
RATE_SECONDS: Final = 30.0  # that a rate is the mean of: shorter jumps about, longer hides that something slowed down
SAMPLE_SECONDS: Final = 0.5  # between two of the points that a rate is taken from
STALLED_SECONDS: Final = 10.0  # without a byte, before it is said
COMPUTING_STALLED_SECONDS: Final = 300.0  # of what a model works at: a batch of it can take minutes on a busy machine

Sample = tuple[float, int]  # (monotonic seconds, done)
OnProgress = Callable[[int, int], None]  # hears (done, total), as a `Progress` does; the unit is whoever calls it's


def unseen(_done: int, _total: int) -> None:
    """Where nobody looks."""


class Progress:
    """Of `what`, counted in `unit` (bytes, tokens, rollouts, ...; empty if nothing is counted).

    Calling it with (done, total) says how far it is; less than before where something is taken back, which is no
    progress. The total may change, and None or 0 means that nobody knows it.
    `resumes` says that the first call tells what was there already. Enter it to have it shown. `fields` go into every
    line.
    """

    def __init__(self, what: str, unit: str, clock: Clock, *, resumes: bool = False, **fields: object) -> None:
        self.what, self.unit, self.fields = what, unit, fields
        self._clock = clock
        self._resumes = resumes
        self._lock = threading.Lock()
        self._started = clock.monotonic()
        self._first = 0
        self._done, self._total = 0, 0
        self._samples: deque[Sample] = deque([(self._started, 0)])
        self._moved_at = self._line_at = self._started
        self._gives_way = False
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)

    def __call__(self, done: int, total: int | None = None) -> None:
        """Says that `done` of `total` are done. From any thread."""
        now = self._clock.monotonic()
        with self._lock:
            self._total = total or 0
            if self._resumes:
                self._resumes, self._first, self._samples = False, done, deque([(now, done)])
            if done > self._done:
                self._moved_at = now
            self._done = done
            if now - self._samples[-1][0] >= SAMPLE_SECONDS:
                self._samples.append((now, done))

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Units a second, the mean of the last `RATE_SECONDS`; it falls while nothing moves."""
        now = self._clock.monotonic()
        with self._lock:
            while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_SECONDS:
                self._samples.popleft()
            since, done = self._samples[0]
            return max(self._done - done, 0) / (now - since) if now > since else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None where total or rate are not known."""
        rate = self.rate
        return max(self._total - self._done, 0) / rate if self._total and rate > 0 else None

    @property
    def stalled_seconds(self) -> float | None:
        """Since something moved last, where that is long ago."""
        since = self._clock.monotonic() - self._moved_at
        most = STALLED_SECONDS if self.unit == "bytes" else COMPUTING_STALLED_SECONDS
        return since if self.unit and since >= most else None

    @property
    def moved(self) -> int:
        """What was done since it began, without what was there before."""
        return self._done - self._first

    def summary(self, done: int | None = None, unit: str | None = None) -> dict[str, object]:
        """Fields of the line that says that it is done: how much (what was there aside), how long, how fast.

        `done` and `unit` where the caller knows better, or counts in something else.
        """
        moved, seconds, unit = self.moved if done is None else done, self.seconds, unit or self.unit
        return {unit: moved, "seconds": seconds, f"{unit}_s": moved / seconds if seconds > 0 else 0.0}

    @contextmanager
    def part(self, what: str, unit: str) -> Iterator["Progress"]:
        """While the block runs, `what` is shown instead, with the same fields; afterwards nothing has stalled yet."""
        self._gives_way = True
        try:
            with Progress(what, unit, self._clock, resumes=True, **self.fields) as part:
                yield part
        finally:
            self._moved_at = self._line_at = self._clock.monotonic()
            self._gives_way = False

    def look(self) -> None:
        """Shows how far it is: at once on a terminal, in a log when its time has come."""
        if self._gives_way:
            live(self, None)
            return
        if live(self, self.text()):
            return
        now = self._clock.monotonic()
        if now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            event(self.what, **self.fields, **self._figures())

    def text(self) -> str:
        """The live line."""
        named = " ".join(f"{key} {field_text(key, value)}" for key, value in self.fields.items())
        parts = [f"{self.what} {named}".rstrip(), *self._counted(), *self._ahead()]
        return ", ".join(parts)

    def _counted(self) -> list[str]:
        if not self.unit:
            return [seconds_text(self.seconds)]
        share = [f"{self._percent}%"] if self._total else []
        return [*share, self._amount(self._done), self._amount(self.rate) + "/s"]

    def _ahead(self) -> list[str]:
        stalled, left = self.stalled_seconds, self.seconds_left
        if stalled is not None:
            return [f"nothing for {seconds_text(stalled)}"]
        return [] if left is None else [f"{seconds_text(left)} left"]

    def _amount(self, count: float) -> str:
        return bytes_text(count) if self.unit == "bytes" else f"{count:,.0f} {self.unit}"

    @property
    def _percent(self) -> int:
        return min(100 * self._done // self._total, 100)

    def _figures(self) -> dict[str, object]:
        if not self.unit:
            return {"seconds": self.seconds}
        figures: dict[str, object] = {self.unit: self._done}
        if self._total:
            figures |= {f"total_{self.unit}": self._total, "percent": self._percent}
        figures |= {f"{self.unit}_s": self.rate, "seconds": self.seconds}
        for name, value in (("seconds_left", self.seconds_left), ("stalled_seconds", self.stalled_seconds)):
            figures |= {} if value is None else {name: value}
        return figures

    # --- Looking, beside what is done

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._looking.join()
        live(self, None)

    def _look_on(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()
