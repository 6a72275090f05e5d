"""Taking in rollout files: whole, no larger than permitted, and hashing to the root that the chain holds."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Digest, Submitted
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.peers.server import NotYet
from node.record import Record, Submission
from node.roles.fetching import Fetching
from node.roles.member import Member
from node.roles.pauses import put_off
from node.roles.streams import file_by_stream
from node.rollouts.file import require_root, size_limit
from node.rollouts.store import RolloutStore
from node.shards.intact import Seen, stamp, unread
from node.shards.layout import disk
from node.shards.manifest import Manifest

MARGIN_SECONDS = 86_400  # of block time, after the last window that can need a file; protocol, "Change"


@dataclass(slots=True)
class Intake:
    """The files of a run that this node holds. A file is stored only if it is exactly what was committed to."""

    member: Member
    store: RolloutStore
    fetching: Fetching = field(init=False)
    offered: dict[Digest, Seen] = field(default_factory=dict)  # what was found to be right
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # one file at a time for strangers

    def __post_init__(self) -> None:
        self.fetching = Fetching(self.member, self.member.state.incoming)

    @property
    def max_file_bytes(self) -> int:
        return size_limit(self.member.spec)

    async def take(self, commitment: Digest, data: bytes) -> None:
        """Stores the file of `commitment`.

        Raises:
            NotYet: this node's chain has not seen the commitment; it looks again at once.
            Malformed: the bytes are not those that were committed to.
        """
        made = (await self.known(commitment)).made
        if await self._has(made):
            return
        await asyncio.to_thread(require_root, data, made.root, self.max_file_bytes)
        await self._keep(made, data)

    async def _keep(self, made: Submitted, data: bytes) -> None:
        """Stores a file that was checked. Raises: StoreError."""
        commitment = made.commitment
        if await self._has(made):  # it came from another one meanwhile
            return
        await asyncio.to_thread(self._put, commitment, data)
        event("file taken", version=made.version, slot=made.slot, commitment=commitment, node=made.node,
              bytes=len(data))  # fmt: skip

    def _put(self, commitment: Digest, data: bytes) -> None:
        """Stores the file, and hands it out from now on. Raises: StoreError."""
        self.store.put(commitment, data)
        path = self.store.path(commitment)
        with disk(f"cannot look at {path}"):
            self.offered[commitment] = Seen(stamp(path), self.member.clock.monotonic())
        with suppress(OSError):  # it has been deleted again
            self.member.singles.add(path, data)

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
        return not is_past(self.member.record, submission) and not await self._has(submission.made)

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

    async def checked(self, commitment: Digest) -> Path:
        """Where the file lies, whose bytes were seen to be the committed ones. Raises: NotFound, NotYet, StoreError."""
        path = self.path(commitment)
        if not await self._offers(commitment) and not await self._has((await self.known(commitment)).made):
            raise NotFound("this node does not hold that file")
        return path

    async def _offers(self, commitment: Digest) -> bool:
        """Whether the file was found to be right lately, and is the same since. Raises: StoreError."""
        seen, path = self.offered.get(commitment), self.store.path(commitment)
        with disk(f"cannot look at {path}"):
            return seen is not None and await asyncio.to_thread(seen.counts, path, self.member.clock.monotonic())

    async def _has(self, made: Submitted) -> bool:
        """Whether the file is here, and right: hashed where it has changed since, where that was long ago, or where an
        earlier process left it.

        Raises: StoreError.
        """
        if not self.holds(made.commitment):
            return False
        if await self._offers(made.commitment):
            return True
        async with self.reading:
            return await self._offers(made.commitment) or await asyncio.to_thread(self._read, made) is not None

    def _read(self, made: Submitted) -> bytes | None:
        """As `get`; what is right is noted as that."""
        path = self.store.path(made.commitment)
        with disk(f"cannot look at {path}"):
            before = unread(path, self.member.clock.monotonic())
        data = self.get(made)
        if before is not None and data is not None:
            self.offered[made.commitment] = before
        return data

    async def manifest(self, commitment: Digest) -> Manifest:
        """By what chunks the file is handed out here. Raises: NotFound, NotYet, StoreError."""
        path = await self.checked(commitment)
        made = (await self.known(commitment)).made
        try:
            async with self.reading:
                return await asyncio.to_thread(lambda: self.member.singles.known(path) or self._shelved(made, path))
        except OSError as error:
            raise NotFound("this node has deleted that file") from error

    def _shelved(self, made: Submitted, path: Path) -> Manifest:
        """Of what the file is to be: what a disk has made of it since is no manifest to hand out. Raises: NotFound."""
        data = self._read(made)
        if data is None:
            raise NotFound("this node does not hold that file")
        return self.member.singles.add(path, data)

    async def fetch(self, commitment: Digest) -> bool:
        """Gets the file from whoever may hold it; whether it is here now. What came of it stays where it did not come
        whole, and is gone on from. Raises: StoreError.
        """
        made = self.member.record.submissions[commitment].made
        name, silent = self.store.path(commitment).name, set[str]()  # whose chunks did not come
        while not await self._has(made):
            given = await self.fetching.offer(commitment, name, self.max_file_bytes, silent)
            if given is None:
                return await self._fetch_by_stream(made)
            holder, offer = given
            data = await self.fetching.receive(commitment, offer) if isinstance(offer, Manifest) else offer
            if data is None:
                silent.add(holder)
                continue
            try:
                await self.take(commitment, data)
            except Malformed as error:
                self.fetching.blame(holder, str(error), commitment)
            await asyncio.to_thread(self.fetching.forget, commitment)
        return True

    async def _fetch_by_stream(self, made: Submitted) -> bool:
        """As `fetch`, from nodes that nobody can connect to."""
        try:
            data = await file_by_stream(self.member.others, made, self.max_file_bytes)
        except NotFound:
            return False
        await self._keep(made, data)
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
                        self.offered.pop(commitment, None)
            for commitment in self.fetching.begun():
                submission = record.submissions.get(commitment)
                if self.holds(commitment) or (submission is not None and is_past(record, submission)):
                    self.fetching.forget(commitment)


def is_past(record: Record, submission: Submission) -> bool:
    """Whether file and evidence of a submission have served: it is final, and every window after that is over."""
    if submission.concluded is None:
        return False
    windows = record.run.params.windows
    return record.head.time > submission.concluded.time + windows.contest + windows.panel + MARGIN_SECONDS
