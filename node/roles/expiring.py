"""Own submissions whose time is over and that no validator concludes: a worker does it, and has their places again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ledger.base import Digest, State
from ledger.errors import Reverted, Unconfirmed, Unreachable
from node.log import event, warn
from node.peers.wire import MAX_BATCH
from node.record import Submission
from node.roles.member import Member
from node.roles.pauses import Pauses

OVERDUE_SECONDS = 60  # of block time, after their time was over: ten validators have had their turns by then


@dataclass(slots=True)
class Expiring:
    """Of one worker."""

    member: Member
    tried: Pauses[Digest] = field(init=False)

    def __post_init__(self) -> None:
        self.tried = Pauses(self.member.clock)

    async def conclude(self, submissions: Sequence[Submission]) -> None:
        """Has those of `submissions` expire that nobody has settled or reported, long after they could be."""
        due = [s.made.commitment for s in submissions if self._is_overdue(s)]
        listed = [commitment for commitment in due if not self.tried.rests(commitment)][:MAX_BATCH]
        if not listed:
            return
        try:
            await self.member.ledger.conclude(self.member.run.id, listed)
        except Unreachable as error:
            self.member.chronicle.lost(error)
        except (Reverted, Unconfirmed) as error:
            warn("what no validator settled in time is not concluded", submissions=len(listed), reason=error)
        else:
            event("concluded: no validator settled it in time", commitments=listed)
        finally:
            for commitment in listed:
                self.tried.note(commitment, done=False)

    def _is_overdue(self, submission: Submission) -> bool:
        over = submission.made.block.time + self.member.run.params.windows.settle_by
        return submission.state == State.SUBMITTED and self.member.record.head.time > over + OVERDUE_SECONDS
