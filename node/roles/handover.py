"""Handing a rollout file to everybody who needs it: every validator and the trainer, each until it has taken it."""

import asyncio
from dataclasses import dataclass, field

from ledger.base import Address, Digest
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.progress import Progress
from node.roles.directory import file_receivers, url_of
from node.roles.member import Member

FIRST_PAUSE_SECONDS = 0.5  # between two tries; doubled each time
TRIES = 8


@dataclass(slots=True)
class Handover:
    """Of one worker. What was not handed over can still be fetched from it."""

    member: Member
    pushes: set[asyncio.Task[None]] = field(default_factory=set)
    started: set[Digest] = field(default_factory=set)

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
        """The address is looked up for every try: a receiver that was restarted may have another one."""
        pause, began = FIRST_PAUSE_SECONDS, self.member.clock.monotonic()
        for _ in range(TRIES):
            url = url_of(self.member.record, who)
            if self.member.record.is_final(commitment) or (url and await self._push_once(who, url, commitment, data)):
                return
            await self.member.clock.sleep(pause)
            pause *= 2
        warn("file not handed over: the receiver can still fetch it here", receiver=who, commitment=commitment,
             seconds=self.member.clock.monotonic() - began)  # fmt: skip

    async def _push_once(self, who: Address, url: str, commitment: Digest, data: bytes) -> bool:
        """Whether nothing is left to do for this receiver."""
        progress = Progress("handing over", "bytes", self.member.clock, receiver=who, commitment=commitment)
        try:
            with progress:
                await self.member.peers.push_submission(url, commitment, data, progress)
        except NotFound:
            return False
        except Malformed as error:
            warn("file refused", url=url, commitment=commitment, reason=error)
        else:
            trainer = who == self.member.run.params.trainer
            event("file handed over", to="trainer" if trainer else "validator", receiver=who, commitment=commitment,
                  **progress.summary(len(data)))  # fmt: skip
        return True
