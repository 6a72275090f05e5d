"""Telling the peers what there is here: rollout files, and chunks of the newest weights."""

import asyncio
from contextlib import suppress
from typing import Final

from ledger.base import Digest
from node.errors import Malformed, NotFound, StoreError
from node.p2p.announcements import MAX_COMMITMENTS, Held, Offers
from node.roles.member import Member
from node.rollouts.store import RolloutStore
from node.shards.bitmaps import is_whole

TELLING_SECONDS: Final = 5.0  # between two looks at what there is to tell
TOLD_AGAIN_SECONDS: Final = 120.0  # for those who came later


class Announcing:
    """What has been told: only news, and all of it again now and then."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.offered: set[Digest] = set()
        self.held: tuple[Digest, bool] | None = None  # of which version it was told, and whether all of it
        self.again = member.clock.monotonic() + TOLD_AGAIN_SECONDS

    async def run(self) -> None:
        """Tells peers what there is here until it is cancelled."""
        while True:
            await self.look()
            await self.member.clock.sleep(TELLING_SECONDS)

    async def look(self) -> None:
        """Tells what is new since the last look."""
        if self.member.clock.monotonic() >= self.again:
            self.again = self.member.clock.monotonic() + TOLD_AGAIN_SECONDS
            self.offered, self.held = set(), None
        with suppress(StoreError, NotFound, Malformed):
            await self._offer()
        with suppress(StoreError, NotFound, Malformed):
            await self._hold()

    async def _offer(self) -> None:
        """The rollout files here whose submissions somebody may still ask about."""
        here = await asyncio.to_thread(RolloutStore(self.member.state.rollouts).list)
        wanted = {commitment for commitment in here if commitment in self.member.record.unfinished}
        news = sorted(wanted - self.offered)[:MAX_COMMITMENTS]
        self.offered = (self.offered & wanted) | set(news)
        if news:
            self.member.others.announce(Offers(tuple(news)))

    async def _hold(self) -> None:
        """What there is of the latest version, when there is some of it, and when there is all."""
        member = self.member
        latest = member.record.latest
        root = None if latest is None or not member.settings.sharing.weights else member.record.root(latest)
        manifest = None if root is None else await asyncio.to_thread(member.checkpoints.known, root)
        if root is None or manifest is None:
            return
        bitmap = member.checkpoints.have(root)
        told = root, is_whole(bitmap, manifest.chunks)
        if any(bitmap) and told != self.held:  # not each chunk: every node of the run hears it
            self.held = told
            member.others.announce(Held(root, manifest.chunks, bitmap))
