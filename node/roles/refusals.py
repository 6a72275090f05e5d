"""What the chain refuses to one who sends: said when it is new, tried again when the chain has moved on, else later
each time."""

from dataclasses import dataclass, field

from ledger.errors import LedgerError
from node.log import warn
from node.roles.member import Member
from node.roles.pauses import Pauses


@dataclass(slots=True)
class Refusals:
    """Of one thing that `member` sends; a new one for the next thing."""

    member: Member
    pauses: Pauses[int] = field(init=False)  # by the head's number
    said: set[type[LedgerError]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pauses = Pauses(self.member.clock)

    @property
    def resting(self) -> bool:
        """Whether it is too early to send it again."""
        return self.pauses.rests(self.member.record.head.number)

    def note(self, what: str, error: LedgerError, **which: int) -> None:
        """It was refused, or nobody answered."""
        head = self.member.record.head.number
        if head not in self.pauses.resting:
            self.pauses.resting.clear()
        self.pauses.note(head, done=False)
        if type(error) not in self.said:
            self.said.add(type(error))
            warn(what, **which, reason=error)
