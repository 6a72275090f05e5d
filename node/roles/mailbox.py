"""The mailbox of a role that only handles rollout files: a worker hands its own out, a trainer takes others' in."""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.base import Digest, RunId
from ledger.messages import SignedMessage
from node.errors import NotFound
from node.peers.wire import BatchAnswer, SignedBatch
from node.roles.intake import Intake

NO_VALIDATOR = "this node is no validator: ask one"


@dataclass(frozen=True, slots=True)
class FileMailbox:
    """Serves the files of `intake`; takes files in only where `takes` says so."""

    intake: Intake
    takes: bool

    @property
    def max_file_bytes(self) -> int:
        return self.intake.max_file_bytes if self.takes else 0

    async def submission(self, commitment: Digest) -> bytes:
        return await self.intake.get(commitment)

    async def take_submission(self, commitment: Digest, data: bytes) -> None:
        if not self.takes:
            raise NotFound("this node takes no files")
        await self.intake.take(commitment, data)

    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]:
        raise NotFound(NO_VALIDATOR)

    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        raise NotFound(NO_VALIDATOR)

    async def batch(self, commitment: Digest) -> SignedBatch:
        raise NotFound(NO_VALIDATOR)

    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        raise NotFound(NO_VALIDATOR)

    async def evidence(self, digest: Digest) -> bytes:
        raise NotFound(NO_VALIDATOR)
