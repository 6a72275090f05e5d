"""Taking in rollout files: whole, no larger than permitted, and hashing to the root that the chain holds."""

import asyncio
from dataclasses import dataclass

from hashing.merkle import leaf_hash, root
from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.peers.server import NotYet
from node.record import Submission
from node.roles.directory import file_holders
from node.roles.member import Member
from node.rollouts.file import size_limit, split_file
from node.rollouts.store import RolloutStore


@dataclass(slots=True)
class Intake:
    """The files of a run that this node holds. A file is stored only if it is exactly what was committed to."""

    member: Member
    store: RolloutStore

    @property
    def max_file_bytes(self) -> int:
        return size_limit(self.member.spec)

    async def take(self, commitment: Digest, data: bytes) -> None:
        """Stores the file of `commitment`.

        Raises:
            NotYet: this node's chain has not seen the commitment; it looks again at once.
            Malformed: the bytes are not those that were committed to.
        """
        submission = await self.known(commitment)
        if self.holds(commitment):
            return
        await asyncio.to_thread(require_root, data, submission.made.root, self.max_file_bytes)
        await asyncio.to_thread(self.store.put, commitment, data)

    async def known(self, commitment: Digest) -> Submission:
        """The commitment as it stands on chain; the chain is read on once where it is not known yet. Raises: NotYet."""
        submissions = self.member.record.submissions
        if commitment not in submissions:
            await self.member.sync()
        if commitment not in submissions:
            raise NotYet("the chain has no such commitment here yet: send it again")
        return submissions[commitment]

    def holds(self, commitment: Digest) -> bool:
        return self.store.path(commitment).exists()

    async def get(self, commitment: Digest) -> bytes:
        """Raises: NotFound."""
        data = await asyncio.to_thread(self.store.get, commitment)
        if data is None:
            raise NotFound("this node does not hold that file")
        return data

    async def fetch(self, commitment: Digest) -> bool:
        """Asks whoever may hold the file; whether it is here now."""
        member = self.member
        node = member.record.submissions[commitment].made.node
        for url in file_holders(member.record, node, member.account):
            try:
                await self.take(commitment, await member.peers.submission(url, commitment, self.max_file_bytes))
                return True
            except (NotFound, Malformed):
                continue
        return False


def require_root(data: bytes, wanted: Digest, limit: int) -> None:
    """Raises: Malformed: the leaves of `data` do not hash to `wanted`."""
    if root([leaf_hash(preimage) for preimage in split_file(data, limit)]) != wanted:
        raise Malformed("the file's leaves do not hash to the committed root")
