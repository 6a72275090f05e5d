"""Letting what could not be done rest, longer each time, so that it holds up and logs as little as it can."""

from dataclasses import dataclass, field

from ledger.base import Digest
from node.clock import Clock

FIRST_SECONDS = 1.0  # doubled each time
MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    seconds: float


@dataclass(slots=True)
class Pauses:
    """By submission."""

    clock: Clock
    resting: dict[Digest, _Pause] = field(default_factory=dict)

    def rests(self, commitment: Digest) -> bool:
        """Whether the submission is to be left alone now."""
        pause = self.resting.get(commitment)
        return pause is not None and self.clock.monotonic() < pause.until

    def note(self, commitment: Digest, *, done: bool) -> None:
        """Takes down how a try went."""
        last = self.resting.pop(commitment, None)
        if not done:
            seconds = FIRST_SECONDS if last is None else min(2 * last.seconds, MAX_SECONDS)
            self.resting[commitment] = _Pause(self.clock.monotonic() + seconds, seconds)

    def forget(self, commitment: Digest) -> None:
        self.resting.pop(commitment, None)
