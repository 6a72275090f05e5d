"""A node whose own disk spoils what it holds: nobody is accused for that, and what was lost is fetched again."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.base import Digest, State, Version
from node.errors import StoreError
from node.membership import first_weights
from node.roles.casebook import Case
from node.rollouts.file import decode_file, encode_file
from node.rollouts.store import MAX_FILE_BYTES, RolloutStore
from node.verdicts import Check, Rejected
from tests.roles.network import Build, Network, Part
from tests.roles.stage import until
from tests.shards.checkpoints import flip


def spoil_rollouts(part: Part, commitment: Digest, network: Network, store: RolloutStore | None = None) -> bytes:
    """Changes a byte of the first proof of every rollout that a node holds; returns what was there."""
    store = store or part.role.intake.store
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


async def test_a_file_that_changes_after_it_was_taken_is_not_handed_out_and_is_had_again(build: Build) -> None:
    network = await build(validators=2)
    holder, worker = await network.validator(0), await network.worker()
    commitment = await network.commit_honestly(worker)
    await holder.member.sync()
    intake = holder.role.intake
    assert await intake.fetch(commitment)
    path = intake.store.path(commitment)
    good = path.read_bytes()

    flip(path)
    await worker.stop()
    other = await network.validator(1)
    await other.member.sync()
    assert not await other.role.intake.fetch(commitment)
    assert not other.member.bans.reasons

    await intake.take(commitment, good)
    assert await other.role.intake.fetch(commitment)


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
    folder = validator.member.versions.held(Version(0))
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


@pytest.mark.parametrize("kind", ["folder", "link", "large"])
async def test_what_came_to_stand_in_a_files_place_is_replaced_by_the_file_fetched_anew(
    build: Build, kind: str
) -> None:
    network = await build(validators=1)
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    path = validator.role.intake.store.path(commitment)
    good = path.read_bytes()
    if kind == "large":
        os.truncate(path, MAX_FILE_BYTES + 1)  # sparse: takes no room
    else:
        path.unlink()
        path.mkdir() if kind == "folder" else path.symlink_to("/etc/hosts")
    await audit_time(network)

    assert await network.settled(commitment) == State.SETTLED
    assert path.read_bytes() == good and not path.is_symlink()


class Refusing(RolloutStore):
    """A store whose disk refuses to read one file."""

    refused = Digest(bytes(32))

    def get(self, commitment: Digest) -> bytes | None:
        if commitment == self.refused:
            raise StoreError("Input/output error")
        return super().get(commitment)


async def test_a_file_that_cannot_be_read_leaves_the_validator_at_work_and_the_others_settle(build: Build) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    store = validator.role.intake.store = Refusing(validator.member.state.rollouts)
    validator.go()
    honest = await network.commit_honestly(await network.worker(200))
    await network.confirmed(honest)
    bad = await network.commit_honestly(await network.worker(300))
    await network.confirmed(bad)
    store.refused = bad
    await audit_time(network)

    assert await network.settled(honest) == State.SETTLED
    assert not validator.finished and network.state(bad) == State.SUBMITTED


async def test_a_case_that_the_disk_refuses_keeps_no_other_submission_from_its_end(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    cases = validator.role.casebook

    class RefusingCases:
        async def case(self, commitment: Digest) -> Case:
            if commitment == bad:
                raise StoreError("Input/output error")
            return await cases.case(commitment)  # type: ignore[no-any-return]

    validator.role.closer.casebook = RefusingCases()
    bad = await network.commit_honestly(await network.worker(200))
    honest = await network.commit_honestly(await network.worker(300))
    validator.go()
    await network.confirmed(bad)
    await network.confirmed(honest)
    await audit_time(network)

    assert await network.settled(honest) == State.SETTLED
    said = [line for line in caplog.records if line.getMessage().startswith("reporting interrupted")]
    assert 1 <= len(said) < 12  # it rests longer each time


async def test_a_trainer_does_not_train_on_a_file_that_its_disk_changed_and_fetches_it_again(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    validator = (await network.validator()).go()
    trainer = await network.trainer()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await trainer.member.sync()
    accepted = trainer.role.accepted
    assert await accepted.intake.fetch(commitment)
    good = await asyncio.to_thread(spoil_rollouts, trainer, commitment, network, accepted.intake.store)
    await network.audited(commitment)
    assert await network.settled(commitment) == State.SETTLED
    await trainer.member.sync()

    await accepted.look(Version(1))
    assert (accepted.groups, accepted.intake.holds(commitment)) == ({}, False)
    assert accepted.absent.rests(commitment)
    await until(lambda: not accepted.absent.rests(commitment))
    accepted.asked.clear()
    await accepted.look(Version(1))

    rows = [row for group in accepted.groups[commitment] for row in group.rollouts]
    assert rows == list(decode_file(good, network.spec))
    assert accepted.intake.store.get(commitment) == good
    damaged = [line for line in caplog.records if line.getMessage().startswith("a stored file is damaged")]
    assert len(damaged) == 1
    assert network.case(validator, commitment).faults == {}


async def test_a_worker_hands_over_its_file_as_committed_when_its_disk_changed_it(build: Build) -> None:
    network = await build(validators=2)
    holding = await network.validator(0)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await holding.member.sync()
    assert await holding.role.intake.fetch(commitment)
    await asyncio.to_thread(spoil_rollouts, worker, commitment, network, worker.role.maker.intake.store)
    other = await network.validator(1)
    await other.member.sync()
    worker.go()

    await until(lambda: other.role.intake.holds(commitment))
    assert other.role.intake.store.get(commitment) == holding.role.intake.store.get(commitment)


async def test_housekeeping_that_the_disk_refuses_is_said_and_ends_nothing(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    rollouts = validator.member.state.rollouts
    await asyncio.to_thread(shutil.rmtree, validator.member.state.checkpoints)
    rollouts.parent.mkdir(parents=True, exist_ok=True)
    rollouts.write_bytes(b"a file, not a folder")

    await validator.member.weights.evict()
    await validator.role.intake.prune()

    assert [line.getMessage() for line in caplog.records if "trying again later" in line.getMessage()] == [
        "old weights not deleted, trying again later",
        "old files not looked for, trying again later",
    ]


def unreadable(part: Part) -> Path:
    """Has the disk refuse a file of version 0 that an earlier process left; its place."""
    root = part.member.record.root(Version(0))
    assert root is not None
    folder = part.member.state.checkpoints / "checkpoints" / root.hex()
    weights = next(folder.glob("*.safetensors"))
    weights.unlink()
    weights.symlink_to("/proc/self/mem")  # who follows it hears of an input/output error
    return folder


async def test_a_checkpoint_that_the_disk_cannot_read_ends_no_role_and_is_fetched_again(build: Build) -> None:
    network = await build(validators=1)
    await (await network.validator()).stop()
    await network.trainer()
    again = await network.validator(weights=False)
    await again.member.sync()
    folder = unreadable(again)

    async with again.member.weights.following():
        await until(lambda: again.member.versions.held(Version(0)) == folder)


async def test_a_store_that_the_disk_refuses_to_look_at_ends_no_role(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    await (await network.validator()).stop()
    await network.trainer()
    again = await network.validator(weights=False)
    await again.member.sync()
    folder = unreadable(again)
    staging = again.member.state.checkpoints / "staging"
    staging.rmdir()
    staging.write_bytes(b"")  # so that what is damaged cannot be removed either

    starting = asyncio.create_task(first_weights(again.member))
    async with again.member.weights.following():
        await until(lambda: sum("cannot be looked at" in each.getMessage() for each in caplog.records) > 1)
        staging.unlink()
        await until(lambda: again.member.versions.held(Version(0)) == folder)
    assert await starting == folder
