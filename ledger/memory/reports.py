"""How reports on single leaves of one submission add up to a conviction, or to nothing, as in `Reports.sol`."""

from collections import defaultdict
from dataclasses import dataclass, field

from ledger.base import Address


@dataclass(slots=True)
class Leaf:
    first_at: int = 0
    voters: set[Address] = field(default_factory=set)


@dataclass(slots=True)
class Case:
    """All reports on one submission.

    A leaf needs its quorum within `confirm` of its own first report, or of when its audit is due if that is later. New
    leaves open until `confirm` after the submission's first report, or until its audit is due if that is later.
    """

    first_at: int = 0  # of any leaf
    latest_at: int = 0  # when the latest leaf was opened
    executable_at: int = 0  # 0: no conviction
    leaves: defaultdict[int, Leaf] = field(default_factory=lambda: defaultdict(Leaf))

    def vote(self, leaf: int, validator: Address, time: int, due: int, confirm: int) -> int:
        """How many validators now say so of `leaf`; 0 where this vote comes twice or too late."""
        entry = self.leaves.get(leaf, Leaf())
        if validator in entry.voters:
            return 0
        if entry.first_at:
            if time > max(entry.first_at, due) + confirm:
                return 0
        elif self.first_at and time > self.first_at + confirm and time > due:
            return 0
        else:
            self.first_at = self.first_at or time
            self.latest_at = entry.first_at = time
        entry.voters.add(validator)
        self.leaves[leaf] = entry
        return len(entry.voters)

    def convict(self, executable_at: int) -> bool:
        """Makes a leaf's quorum the submission's conviction, unless there is one already."""
        if self.executable_at:
            return False
        self.executable_at = executable_at
        return True

    def is_undecided(self, time: int, due: int, confirm: int) -> bool:
        """Whether no leaf can reach its quorum any more."""
        return not self.executable_at and time > max(self.latest_at, due) + confirm
