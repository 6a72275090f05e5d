"""A validator whose own disk spoils what it holds: nobody is accused for that, and what was lost is fetched again."""

import asyncio
import os
from dataclasses import replace

import pytest

from ledger.base import Digest, State, Version
from node.errors import StoreError
from node.rollouts.file import decode_file, encode_file
from node.rollouts.store import MAX_FILE_BYTES
from node.verdicts import Check, Rejected
from tests.roles.network import Build, Network, Part
from tests.roles.stage import until


def spoil_rollouts(part: Part, commitment: Digest, network: Network) -> bytes:
    """Changes a byte of the first proof of every rollout that the validator holds; returns what was there."""
    store = part.role.intake.store
    data = store.get(commitment)
    rows = [
        replace(row, proofs=(bytes(reversed(row.proofs[0])), *row.proofs[1:]))
        for row in decode_file(data, network.spec)
    ]
    store.put(commitment, encode_file(rows))
    return data  # type: ignore[no-any-return]


async def audit_time(network: Network) -> None:
    await network.pass_time(network.spec.windows.available)
    for _ in range(3):
        await network.pass_time(1)


async def test_a_stored_file_that_the_disk_changed_is_fetched_again_and_nobody_is_accused(
    build: Build,
) -> None:
    network = await build(validators=1)
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    good = await asyncio.to_thread(spoil_rollouts, validator, commitment, network)
    await audit_time(network)

    await until(lambda: validator.member.account in network.case(validator, commitment).no_faults)

    assert network.case(validator, commitment).faults == {}
    assert validator.role.intake.store.get(commitment) == good


async def test_no_evidence_is_written_of_a_file_that_the_disk_changed_after_it_was_judged(build: Build) -> None:
    network = await build(validators=1)
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await validator.stop()
    await asyncio.to_thread(spoil_rollouts, validator, commitment, network)
    found = Rejected(Check.TOPLOC, 0, "1", "0", "judged before")

    submission = validator.member.record.submissions[commitment]
    with pytest.raises(StoreError, match="gone before its evidence"):
        validator.role.auditor.evidence(submission, found, "scripted")

    assert validator.role.intake.store.get(commitment) is None


async def test_who_once_held_a_file_does_not_say_that_it_was_withheld(build: Build) -> None:
    network = await build(validators=2)
    validator = (await network.validator()).go()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await network.confirmed(commitment)
    worker.role.maker.intake.store.delete(commitment)
    validator.role.intake.store.delete(commitment)

    await network.pass_time(network.spec.windows.available + network.spec.windows.audit + 2)
    await network.pass_time(2)

    assert network.case(validator, commitment).faults == {}


async def test_weights_that_the_disk_changed_under_a_running_validator_accuse_nobody_and_are_fetched_again(
    build: Build,
) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    folder = validator.member.held(Version(0))
    assert folder is not None
    weights = next(folder.glob("*.safetensors"))
    good = weights.read_bytes()
    weights.chmod(0o644)
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # after the store has hashed it, the size stays
    validator.go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await audit_time(network)

    await until(lambda: validator.member.account in network.case(validator, commitment).no_faults)

    assert network.case(validator, commitment).faults == {}
    assert weights.read_bytes() == good


async def test_a_file_that_cannot_be_read_leaves_the_validator_at_work_and_the_others_settle(build: Build) -> None:
    network = await build(validators=1)
    validator = (await network.validator()).go()
    honest = await network.commit_honestly(await network.worker(200))
    await network.confirmed(honest)
    bad = await network.commit_honestly(await network.worker(300))
    await network.confirmed(bad)
    assert bad not in validator.role.auditor.draws  # its file is yet to be read for the draw
    os.truncate(validator.role.intake.store.path(bad), MAX_FILE_BYTES + 1)  # sparse: takes no room
    await audit_time(network)

    assert await network.settled(honest) == State.SETTLED
    assert not validator.finished and network.state(bad) == State.SUBMITTED
