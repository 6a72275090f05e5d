"""Taking in rollout files: whole, no larger than permitted, and hashing to the root that the chain holds."""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Digest, Submitted
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.peers.server import NotYet
from node.record import Record, Submission
from node.roles.directory import file_holders, url_of
from node.roles.member import Member
from node.roles.pauses import put_off
from node.rollouts.file import file_root, size_limit
from node.rollouts.store import RolloutStore

MARGIN_SECONDS = 86_400  # of block time, after the last window that can need a file; protocol, "Change"


@dataclass(slots=True)
class Intake:
    """The files of a run that this node holds. A file is stored only if it is exactly what was committed to."""

    member: Member
    store: RolloutStore
    patience_seconds: float = 3.0  # before the next one is asked beside one that has not answered yet
    share_seconds: float = 30.0  # for one holder to send the whole of it
    rng: random.Random = field(default_factory=random.Random)

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
        if self.holds(commitment):  # it came from another one meanwhile
            return
        await asyncio.to_thread(self.store.put, commitment, data)
        made = submission.made
        event("file taken", version=made.version, slot=made.slot, commitment=commitment, node=made.node,
              bytes=len(data))  # fmt: skip

    async def known(self, commitment: Digest) -> Submission:
        """The commitment as it stands on chain, which is read on where it is not known yet. Raises: NotYet."""
        submissions = self.member.record.submissions
        if commitment not in submissions:
            await self.member.look()
        if commitment not in submissions:
            raise NotYet("the chain has no such commitment here yet: send it again")
        return submissions[commitment]

    async def wants(self, commitment: Digest) -> bool:
        """Whether the file is of use and not here. Raises: NotYet."""
        submission = await self.known(commitment)
        return not self.holds(commitment) and not is_past(self.member.record, submission)

    def holds(self, commitment: Digest) -> bool:
        return self.store.holds(commitment)

    def path(self, commitment: Digest) -> Path:
        """Where the file lies. Raises: NotFound."""
        if not self.holds(commitment):
            raise NotFound("this node does not hold that file")
        return self.store.path(commitment)

    def get(self, made: Submitted) -> bytes | None:
        """The file, or None where it is not here: what this disk has made of it is removed, to be fetched again.

        Blocking. Raises: StoreError.
        """
        data = self.store.get(made.commitment)
        if data is None:
            return None
        try:
            require_root(data, made.root, self.max_file_bytes)
        except Malformed as error:
            warn("a stored file is damaged and removed, to be fetched again", commitment=made.commitment, reason=error)
            self.store.delete(made.commitment)
            return None
        return data

    async def fetch(self, commitment: Digest) -> bool:
        """Asks whoever may hold the file; whether it is here now.

        The worker itself first, then in an order of this node's own that nobody can stand at the head of. None waits
        for long for the one before it: whoever stalls holds nobody up.
        """
        member = self.member
        node = member.record.submissions[commitment].made.node
        holders = list(file_holders(member.record, node, member.account))
        self.rng.shuffle(holders)
        holders.sort(key=lambda url: url != url_of(member.record, node))
        asking: set[asyncio.Task[bool]] = set()
        try:
            while holders or asking:
                if holders:
                    asking.add(asyncio.create_task(self._fetch_from(holders.pop(0), commitment)))
                patience = self.patience_seconds if holders else None
                done, asking = await asyncio.wait(asking, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                taken = [task.result() for task in done]
                if any(taken):
                    return True
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _fetch_from(self, url: str, commitment: Digest) -> bool:
        try:
            async with asyncio.timeout(self.share_seconds):
                data = await self.member.peers.submission(url, commitment, self.max_file_bytes)
            await self.take(commitment, data)
        except (NotFound, Malformed, TimeoutError):
            return False
        return True

    async def prune(self) -> None:
        """Deletes the files that nobody needs any more; one that the disk keeps is said, and keeps no other."""
        await asyncio.to_thread(self._prune)

    def _prune(self) -> None:
        record = self.member.record
        with put_off("old files not looked for"):
            for commitment in self.store.list():
                submission = record.submissions.get(commitment)
                if submission is not None and is_past(record, submission):
                    with put_off("an old file not deleted"):
                        self.store.delete(commitment)


def is_past(record: Record, submission: Submission) -> bool:
    """Whether file and evidence of a submission have served: it is final, and every window after that is over."""
    if submission.concluded is None:
        return False
    windows = record.run.params.windows
    return record.head.time > submission.concluded.time + windows.contest + windows.panel + MARGIN_SECONDS


def require_root(data: bytes, wanted: Digest, limit: int) -> None:
    """Raises: Malformed: the leaves of `data` do not hash to `wanted`."""
    if file_root(data, limit) != wanted:
        raise Malformed("the file's leaves do not hash to the committed root")
