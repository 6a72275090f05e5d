"""From a commitment and a file's bytes to what the checks are given."""

from ledger.base import Address, Digest, Submitted, Version
from node.checks.subject import Claim, Subject
from node.errors import NotFound
from node.roles.member import Member
from node.rollouts.file import decode_file
from node.tasks.taskset import Taskset


def claim(
    member: Member, node: Address, version: Version, slot: int, root: Digest, units: int, beacon: Digest
) -> Claim:
    """Everything that a commitment in this run binds. Raises: NotFound: the version is not published."""
    manifest_root = member.record.root(version)
    if manifest_root is None:
        raise NotFound(f"version {version} is not published")
    ledger, run = member.ledger, member.run
    return Claim(
        ledger.chain_id, ledger.coordinator, run.id, run.spec_digest, manifest_root, node, version, slot, root, units,
        beacon,
    )  # fmt: skip


def claim_of(member: Member, made: Submitted) -> Claim:
    """The claim that stands on chain."""
    return claim(member, made.node, made.version, made.slot, made.root, made.units, made.beacon)


def decoded_subject(member: Member, tasks: Taskset, what: Claim, data: bytes) -> Subject:
    """Raises: Malformed: `data` does not parse."""
    return Subject(member.spec, what, decode_file(data, member.spec), tasks)
