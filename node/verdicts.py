"""What a check found. A verdict is a value; an error means "could not decide" and never slashes."""

from dataclasses import dataclass
from enum import IntEnum


class Check(IntEnum):
    """Codes on chain, fixed by the protocol ("Check codes and what they cost")."""

    WITHHELD = 0
    SCHEMA = 1
    ROOT = 2
    ASSIGNMENT = 3
    BOUNDS = 4
    DUPLICATE = 5
    REWARD = 6
    TERMINATION = 7
    TOPLOC = 8
    SAMPLING = 9
    LOGPROBS = 10

    @property
    def slashes(self) -> bool:
        """Only what needs a model and an audit costs stake; the others void reward and bond."""
        return self in {Check.TOPLOC, Check.SAMPLING}


def check_name(code: int | None) -> str:
    """A check as logs and answers name it; no check, or a code of none, is a report that found no quorum."""
    return Check(code).name.lower() if code in set(Check) else "undecided"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Nothing wrong found. `measured` holds the figures of the checks that measure, by name."""

    measured: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """`check` failed on `leaf` (`ledger.base.WHOLE_FILE` for the file): `measured` against `threshold`."""

    check: Check
    leaf: int
    measured: str
    threshold: str
    detail: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Could not be checked here and now: try again. Never evidence against anybody."""

    reason: str


Verdict = Accepted | Rejected | Undecided
