"""What a role answers to its peers: one that only handles rollout files, and one that validates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest, RunId
from ledger.messages import SignedMessage
from node.errors import Malformed, NotFound
from node.peers.wire import MAX_BATCH, BatchAnswer, SignedBatch
from node.roles.acceptance import Acceptance
from node.roles.batching import Batcher
from node.roles.casebook import Casebook
from node.roles.exhibits import Exhibits
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

    async def submission(self, commitment: Digest) -> Path:
        return await self.intake.checked(commitment)

    async def manifest(self, commitment: Digest) -> bytes:
        return (await self.intake.manifest(commitment)).encode()

    async def wants_submission(self, commitment: Digest) -> bool:
        if not self.takes:
            raise NotFound("this node takes no files")
        return await self.intake.wants(commitment)

    async def take_submission(self, commitment: Digest, data: bytes) -> None:
        await self.intake.take(commitment, data)

    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]:
        raise NotFound(NO_VALIDATOR)

    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        raise NotFound(NO_VALIDATOR)

    async def batch(self, commitment: Digest) -> SignedBatch:
        raise NotFound(NO_VALIDATOR)

    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        raise NotFound(NO_VALIDATOR)

    async def evidence(self, digest: Digest) -> Path:
        raise NotFound(NO_VALIDATOR)


@dataclass(frozen=True, slots=True)
class ValidatorMailbox:
    """Takes files and verdicts in, signs batches that `acceptable` accepts, gives out what this validator found."""

    intake: Intake
    casebook: Casebook
    batcher: Batcher
    exhibits: Exhibits
    acceptable: Acceptance

    @property
    def max_file_bytes(self) -> int:
        return self.intake.max_file_bytes

    async def submission(self, commitment: Digest) -> Path:
        return await self.intake.checked(commitment)

    async def manifest(self, commitment: Digest) -> bytes:
        return (await self.intake.manifest(commitment)).encode()

    async def wants_submission(self, commitment: Digest) -> bool:
        return await self.intake.wants(commitment)

    async def take_submission(self, commitment: Digest, data: bytes) -> None:
        await self.intake.take(commitment, data)

    async def verdicts(self, commitment: Digest) -> Sequence[SignedMessage]:
        submission = await self.intake.known(commitment)
        if submission.state.final:
            return await self.casebook.closed(commitment)
        return (await self.casebook.case(commitment)).messages()

    async def take_verdicts(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        if not (await self.intake.known(commitment)).state.final:
            await self.casebook.add_pushed(commitment, messages)

    async def batch(self, commitment: Digest) -> SignedBatch:
        found = self.batcher.batches.get(commitment)
        if found is None:
            raise NotFound("no quorum has signed a batch with this commitment here")
        return found

    async def sign_batch(self, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        member = self.intake.member
        if run != member.run.id or len(set(commitments)) != len(commitments) or len(commitments) > MAX_BATCH:
            raise Malformed(f"a batch names up to {MAX_BATCH} different commitments of this run")
        known = [member.record.submissions.get(commitment) for commitment in commitments]
        good = [submission is not None and await self.acceptable(submission) for submission in known]
        refused = tuple(c for c, fine in zip(commitments, good, strict=True) if not fine)
        return BatchAnswer(None if refused else await self.batcher.sign(commitments), refused)

    async def evidence(self, digest: Digest) -> Path:
        return self.exhibits.held(digest)
