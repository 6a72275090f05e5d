"""What a slot of this node is: as the chain says it, now."""

from ledger.base import Version
from ledger.errors import Unreachable
from node.roles.member import Member
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
