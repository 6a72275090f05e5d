"""Letting what could not be done rest, longer each time, so that it holds up and logs as little as it can."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from node.clock import Clock
from node.errors import StoreError
from node.log import warn

FIRST_SECONDS = 1.0  # doubled each time
MAX_SECONDS = 60.0

About = TypeVar("About", bound=Hashable)  # what rests: a submission by its commitment, most often


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    seconds: float


@dataclass(slots=True)
class Pauses(Generic[About]):
    """By what they are about."""

    clock: Clock
    first_seconds: float = FIRST_SECONDS
    resting: dict[About, _Pause] = field(default_factory=dict)

    def rests(self, about: About) -> bool:
        """Whether it is to be left alone now."""
        pause = self.resting.get(about)
        return pause is not None and self.clock.monotonic() < pause.until

    def note(self, about: About, *, done: bool) -> None:
        """Takes down how a try went."""
        last = self.resting.pop(about, None)
        if not done:
            seconds = self.first_seconds if last is None else min(2 * last.seconds, MAX_SECONDS)
            self.resting[about] = _Pause(self.clock.monotonic() + seconds, seconds)

    def forget(self, about: About) -> None:
        self.resting.pop(about, None)


@contextmanager
def put_off(what: str) -> Iterator[None]:
    """Around housekeeping: where the disk refuses it, that is said, and the next time will do."""
    try:
        yield
    except StoreError as error:
        warn(f"{what}, trying again later", reason=error)
