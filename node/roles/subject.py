"""From a commitment on chain and a file's bytes to what the checks are given."""

from dataclasses import dataclass

from ledger.base import Address, Digest, Submitted, Version
from node.checks.base import Subject
from node.errors import NotFound
from node.roles.member import Member
from node.rollouts.file import decode_file
from node.tasks.taskset import Taskset


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a commitment binds, before or after it is on chain."""

    node: Address
    version: Version
    slot: int
    root: Digest
    units: int
    beacon: Digest


def decoded_subject(member: Member, tasks: Taskset, made: Submitted | Claimed, data: bytes) -> Subject:
    """Raises: Malformed: `data` does not parse. NotFound: the version is not published."""
    manifest_root = member.record.root(made.version)
    if manifest_root is None:
        raise NotFound(f"version {made.version} is not published")
    return Subject(
        spec=member.spec, chain_id=member.ledger.chain_id, contract=member.ledger.coordinator, run=member.run.id,
        spec_digest=member.run.spec_digest, manifest_root=manifest_root, node=made.node, version=made.version,
        slot=made.slot, root=made.root, units=made.units, beacon=made.beacon,
        rollouts=decode_file(data, member.spec), tasks=tasks,
    )  # fmt: skip
