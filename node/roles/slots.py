"""Slots of this node: what each is, as the chain says it now, and which is to be made next."""

import asyncio
from dataclasses import dataclass

from ledger.base import Version
from ledger.errors import Unreachable
from node.record import Submission
from node.roles.making import Maker
from node.roles.member import Member
from node.roles.pipeline import Pipeline
from node.rollouts.assignment import Assignment, assign


async def assignment_of(member: Member, version: Version, slot: int | None = None) -> Assignment | None:
    """What `slot` in `version` is, the member's next one if None; None while its beacon is not there."""
    try:
        if slot is None:
            slot = await member.ledger.slot(member.run.id, version, member.account)
        block = member.record.beacon_block(version, member.account, slot)
        beacon = None if block is None else await member.ledger.beacon(block)
    except Unreachable as error:
        member.chronicle.lost(error)
        return None
    manifest_root = member.record.root(version)
    if beacon is None or manifest_root is None:
        return None
    return assign(
        member.spec, member.ledger.chain_id, member.ledger.coordinator, member.run.id, member.run.spec_digest,
        version, manifest_root, member.account, slot, beacon,
    )  # fmt: skip


@dataclass(slots=True)
class Slots:
    """Of one worker: `maker` knows what lies finished here, `pipeline` what is being made."""

    member: Member
    maker: Maker
    pipeline: Pipeline
    unsent: bool = True  # whether a finished file may lie here that was not committed

    def open(self) -> list[Submission]:
        """What this node has committed to and is not final."""
        return [s for s in self.member.record.open_submissions() if s.made.node == self.member.account]

    async def next(self) -> Assignment | None:
        """What to make next, or None where nothing can be made now."""
        record, member = self.member.record, self.member
        if len(self.open()) >= member.run.params.max_open:
            return None
        first = max((version for version, node in record.commits if node == member.account), default=Version(0))
        finished = await self._finished_before(first) if self.unsent else None
        if finished is not None or record.ended is not None:
            return finished
        ahead = self.pipeline.ahead
        if ahead is not None and record.is_open(ahead.version):
            assignment = await assignment_of(member, ahead.version)
            if assignment is None or assignment == ahead:
                return assignment
        await self.pipeline.drop_ahead()
        held = await asyncio.to_thread(member.versions.newest_held)
        if held is None or held < first:
            return None  # the chain takes nothing for a version before one that this node has committed in
        return await assignment_of(member, held)

    async def after(self, assignment: Assignment) -> Assignment | None:
        """The slot after `assignment`, where it can be known already and will be wanted."""
        if len(self.open()) + 1 >= self.member.run.params.max_open or self.member.record.ended is not None:
            return None
        if await asyncio.to_thread(self.member.versions.newest_held) != assignment.version:
            return None
        return await assignment_of(self.member, assignment.version, assignment.slot + 1)

    async def _finished_before(self, first: Version) -> Assignment | None:
        """Of which assignment a file lies here that a killed process, or a chain out of reach, kept from the chain.

        The oldest from version `first` on: once something newer is committed, the chain takes it no more.
        """
        record = self.member.record
        for version in map(Version, range(first, len(record.checkpoints))):
            if record.is_open(version):
                assignment = await assignment_of(self.member, version)
                if assignment is not None and await asyncio.to_thread(self.maker.has_made, assignment):
                    return assignment
        self.unsent = False
        return None
