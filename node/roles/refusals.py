"""What could not be sent: said when it is new, tried again when the chain has moved on, else later each time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from node.clock import Clock
from node.log import warn
from node.roles.pauses import Pauses


@dataclass(slots=True)
class Refusals:
    """Of one thing that is to be sent; a new one for the next thing. `situation`: what has to change for it to be sent
    before its time."""

    clock: Clock
    situation: Callable[[], Hashable]
    pauses: Pauses[Hashable] = field(init=False)
    said: set[type[Exception]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pauses = Pauses(self.clock)

    @property
    def resting(self) -> bool:
        """Whether it is too early to send it again."""
        return self.pauses.rests(self.situation())

    def note(self, what: str, error: Exception, **which: int) -> None:
        """It was refused, or nobody answered."""
        now = self.situation()
        if now not in self.pauses.resting:
            self.pauses.resting.clear()
        self.pauses.note(now, done=False)
        if type(error) not in self.said:
            self.said.add(type(error))
            warn(what, **which, reason=error)
