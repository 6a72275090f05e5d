"""What happens on chain to a run, as lines of the log: each event once, and only what this role's operator asks about.

A validator asks about every submission, a worker about its own. What happened before this process began is summed up
in one line; `intellect-node status` has it all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.base import (
    WHOLE_FILE,
    Address,
    CheckpointPublished,
    Convicted,
    Digest,
    Event,
    Expired,
    RelaySet,
    Reported,
    RunEnded,
    Settled,
    SlashExecuted,
    Submitted,
    Voided,
)
from ledger.errors import LedgerError
from node.clock import Clock
from node.log import event, warn
from node.record import Record
from node.verdicts import check_name

REMIND_SECONDS = 60.0  # between two lines about a chain that does not answer

OnSubmission = Submitted | Settled | Reported | Convicted | Voided | Expired | SlashExecuted


@dataclass(slots=True)
class Chronicle:
    """Of one key in one run."""

    record: Record
    account: Address
    clock: Clock
    begun: bool = False
    lost_at: float | None = None  # since when no endpoint answers, monotonic
    reminded_at: float = 0.0

    def read(self, news: Sequence[Event]) -> None:
        """The chain answered; `news` are the events that the record had not seen."""
        if self.lost_at is not None:
            event("chain back", seconds=self.clock.monotonic() - self.lost_at, block=self.record.head.number)
            self.lost_at = None
        if not self.begun:
            self.begun = True
            self._sum_up()
            return
        for each in news:
            self._tell(each)

    def lost(self, error: LedgerError) -> None:
        """No endpoint answered; said at once, then now and then."""
        now = self.clock.monotonic()
        if self.lost_at is None:
            self.lost_at = now
        elif now - self.reminded_at < REMIND_SECONDS:
            return
        self.reminded_at = now
        warn("chain unreachable, trying again", seconds=now - self.lost_at or None, reason=error)

    def _sum_up(self) -> None:
        record = self.record
        own = [s for s in record.open_submissions() if s.made.node == self.account]
        event("chain read", run=record.run.id, block=record.head.number, version=record.latest,
              submissions=len(record.submissions), open=len(record.open_submissions()),
              own_open=len(own) if self.account in record.allocated else None)  # fmt: skip

    def _tell(self, news: Event) -> None:
        match news:
            case CheckpointPublished() if self.account != self.record.run.params.trainer:
                event("published", version=news.version, root=news.manifest_root)
            case RunEnded():
                event("run ended", version=self.record.latest)
            case RelaySet() if news.relay == self.account:
                event("approved as a relay" if news.approved else "no longer an approved relay")
            case Submitted() | Settled() | Reported() | Convicted() | Voided() | Expired() | SlashExecuted():
                self._tell_submission(news)
            case _:
                pass

    def _tell_submission(self, news: OnSubmission) -> None:
        known = self.record.submissions.get(news.commitment)
        if known is None:
            return
        made, mine = known.made, known.made.node == self.account
        if not mine and self.account not in self.record.run.params.validators:
            return
        what, fields = self._line(news)
        if mine and isinstance(news, Submitted):  # the worker says so itself
            return
        tell: Callable[..., None] = warn if mine and not isinstance(news, Settled) else event
        whose = {} if mine else {"node": made.node}
        tell(what, version=made.version, slot=made.slot, commitment=made.commitment, **whose, **fields)

    def _line(self, news: OnSubmission) -> tuple[str, dict[str, object]]:
        match news:
            case Submitted():
                seen = self.record.submissions[news.commitment]
                return "commitment seen", {"units": news.units, "due": self.record.due(seen)}
            case Settled():
                return "settled", {"pay": news.reward}
            case Reported():
                quorum = self.record.run.params.quorum
                who = {"validator": news.validator, "votes": news.count, "quorum": quorum}
                return "reported", {"check": check_name(news.check), "leaf": leaf_name(news.leaf), **who}
            case Convicted():
                found: dict[str, object] = {"check": check_name(news.check), "leaf": leaf_name(news.leaf)}
                return "convicted", found | {"due": news.executable_at}
            case Voided():
                return "voided", {"check": check_name(news.check), "bond": news.bond}
            case Expired():
                return "expired", {"reason": "no quorum signed in time: nothing paid, nothing lost"}
            case SlashExecuted():
                check = check_name(self.record.submissions[news.commitment].check)
                return "slashed", {"check": check, "amount": news.amount, "transaction": news.transaction}


def named(record: Record, commitment: Digest) -> dict[str, Any]:
    """The fields by which every line names a submission."""
    known = record.submissions.get(commitment)
    if known is None:
        return {"commitment": commitment}
    return {"version": known.made.version, "slot": known.made.slot, "commitment": commitment, "node": known.made.node}


def leaf_name(leaf: int) -> int | str:
    """The leaf's number, or that it stands for the whole file."""
    return "whole file" if leaf == WHOLE_FILE else leaf
