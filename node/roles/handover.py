"""Handing a rollout file to everybody who needs it: every validator and the trainer, each until it has taken it.

A small file is sent whole. A large one is left to be fetched by chunks, from here and from each other, by receivers
that begin to; it is sent whole only to those that do not, because they cannot reach this node.
"""

import asyncio
from dataclasses import dataclass, field

from ledger.base import Address, Digest
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.progress import Progress
from node.roles.directory import file_receivers, url_of
from node.roles.member import Member
from node.rollouts.store import RolloutStore
from node.shards.bitmaps import is_whole
from node.shards.manifest import CHUNK_BYTES

FIRST_PAUSE_SECONDS = 0.5  # between two tries; doubled each time
TRIES = 8
SILENT_TRIES = 4  # in vain, before that is said: three and a half seconds, and what each took
SENT_AT_ONCE_BYTES = CHUNK_BYTES  # what is not larger has no chunks that several could have from each other
ASK_SECONDS = 3.0  # between two looks at how far a receiver is
BEGIN_SECONDS = 15.0  # for it to begin
MOVE_SECONDS = 90.0  # for its next chunk


@dataclass(slots=True)
class Handover:
    """Of one worker. What was not handed over can still be fetched from it."""

    member: Member
    ask_seconds: float = ASK_SECONDS
    pushes: set[asyncio.Task[None]] = field(default_factory=set)
    started: set[Digest] = field(default_factory=set)
    silent: set[Address] = field(default_factory=set)  # who took nothing lately, which was said

    def start(self, commitment: Digest, data: bytes | None) -> None:
        """Hands `data` over in the background; None says that the file is lost."""
        self.started = {known for known in self.started if not self.member.record.is_final(known)} | {commitment}
        if data is None:
            what = (
                "the file of an open submission is not on this disk: it will be void, unless it was handed over before"
            )
            warn(what, commitment=commitment)
            return
        for who in file_receivers(self.member.record, self.member.account):
            task = asyncio.create_task(self._push(who, commitment, data))
            self.pushes.add(task)
            task.add_done_callback(self.pushes.discard)

    async def close(self) -> None:
        """Stops where everything is final anyway."""
        for task in self.pushes:
            task.cancel()
        await asyncio.gather(*self.pushes, return_exceptions=True)

    async def _push(self, who: Address, commitment: Digest, data: bytes) -> None:
        mine = url_of(self.member.record, self.member.account)  # without one nobody can begin to fetch it here
        if mine and len(data) > SENT_AT_ONCE_BYTES and await self._is_fetched(who, commitment, data):
            return
        pause, began = FIRST_PAUSE_SECONDS, self.member.clock.monotonic()
        for tries in range(1, TRIES + 1):
            if self.member.record.is_final(commitment):
                return
            reason = await self._why_not_pushed(who, commitment, data)
            if reason is None:
                self.silent.discard(who)
                return
            if tries == SILENT_TRIES and who not in self.silent:
                self.silent.add(who)
                warn("a receiver takes no file, trying on", receiver=who, role=self._role(who), reason=reason)
            await self.member.clock.sleep(pause)
            pause *= 2
        warn("file not handed over: the receiver can still fetch it here", receiver=who, commitment=commitment,
             seconds=self.member.clock.monotonic() - began, reason=reason)  # fmt: skip

    async def _is_fetched(self, who: Address, commitment: Digest, data: bytes) -> bool:
        """Whether nothing is left to do for this receiver, which is waited for while it fetches the file by chunks."""
        clock, path = self.member.clock, RolloutStore(self.member.state.rollouts).path(commitment)
        began = moved = clock.monotonic()
        had = b""
        try:
            manifest = await asyncio.to_thread(self.member.singles.add, path, data)
        except OSError:  # it is only in memory any more
            return False
        while clock.monotonic() - moved < (MOVE_SECONDS if had else BEGIN_SECONDS):
            if self.member.record.is_final(commitment):
                return True
            has = await self._had_by(who, manifest.root)
            if is_whole(has, manifest.chunks):
                self._handed_over(who, commitment, bytes=len(data), seconds=clock.monotonic() - began)
                return True
            if has != had:
                had, moved = has, clock.monotonic()
            await clock.sleep(self.ask_seconds)
        return False

    async def _had_by(self, who: Address, root: Digest) -> bytes:
        """Its bitmap of the file's chunks, empty where it has begun with none."""
        url = url_of(self.member.record, who)
        try:
            return await self.member.peers.have(url, root) if url else b""
        except (NotFound, Malformed):
            return b""

    def _handed_over(self, who: Address, commitment: Digest, **figures: object) -> None:
        event("file handed over", to=self._role(who), receiver=who, commitment=commitment, **figures)

    def _role(self, who: Address) -> str:
        return "trainer" if who == self.member.run.params.trainer else "validator"

    async def _why_not_pushed(self, who: Address, commitment: Digest, data: bytes) -> str | None:
        """None where nothing is left to do for this receiver. It may have another address than before."""
        url = url_of(self.member.record, who)
        if url is None:
            return "it announces no address"
        progress = Progress("handing over", "bytes", self.member.clock, receiver=who, commitment=commitment)
        try:
            with progress:
                await self.member.peers.push_submission(url, commitment, data, progress)
        except NotFound as error:
            return str(error)
        except Malformed as error:
            warn("file refused", url=url, commitment=commitment, reason=error)
        else:
            self._handed_over(who, commitment, **progress.summary(len(data)))
        return None
