"""What a trainer takes for accepted, and from whom."""

from dataclasses import replace
from typing import Any

from ledger.base import Address, Digest, Fault, State, Version
from ledger.messages import Batch, Domain, sign
from node.peers.wire import SignedBatch
from node.roles.frauds import ForgedReward
from node.rollouts.file import decode_file
from tests.roles.network import Build, Network
from tests.roles.stage import key, tar_pit, until


async def test_rewards_are_computed_anew_and_only_what_was_accepted_is_taken(build: Build) -> None:
    network = await build(validators=1)
    trainer = await network.trainer()
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    accepted = trainer.role.accepted
    await trainer.member.sync()
    await accepted.look(Version(1))
    assert accepted.groups == {}  # held by everybody, signed by nobody

    await network.audited(commitment)
    await network.pass_time(24)
    await trainer.member.sync()
    accepted.asked.clear()
    await accepted.look(Version(1))
    rows = decode_file(validator.role.intake.store.get(commitment), network.spec)
    made = trainer.member.record.submissions[commitment].made
    first, second = accepted.groups[commitment]
    items = [subject_item(network, made, group) for group in range(2)]
    assert first.rollouts + second.rollouts == rows
    assert first.rewards == tuple(network.tasks.score(items[0], r.output_ids, r.finish) for r in rows[:2])
    assert second.rewards == tuple(network.tasks.score(items[1], r.output_ids, r.finish) for r in rows[2:])
    assert (first.provider, first.version, second.group) == (Address(key(100).address), 0, 1)

    await accepted.look(Version(3))  # made from versions 0 to 2
    assert commitment in accepted.groups
    await accepted.look(Version(4))  # from 1 to 3
    assert (accepted.groups, accepted.asked) == ({}, {})


def subject_item(network: Network, made: Any, group: int) -> int:
    from hashing.assignment import item_index, seed

    found = seed(
        network.chain.chain_id, network.chain.runs.address, network.run, network.spec.digest, made.version,
        bytes.fromhex(network.spec.model.manifest_root), made.node, made.slot, made.beacon,
    )  # fmt: skip
    return item_index(found, group, network.spec.total_items)


async def test_what_a_quorum_accepted_is_not_trained_on_when_a_cheap_check_fails_here(build: Build) -> None:
    network = await build(validators=1)
    trainer = await network.trainer()
    commitment = await network.commit_honestly(await network.worker(work=ForgedReward()))
    domain = Domain(network.chain.chain_id, network.chain.runs.address)
    signature = sign(network.validators[0], domain, Batch(network.run, (commitment,)))
    network.chain.mine(20)
    await network.connect(key(9)).settle(network.run, [commitment], [signature])
    await trainer.member.sync()

    await trainer.role.accepted.look(Version(1))

    assert network.state(commitment) == State.SETTLED
    assert trainer.role.accepted.groups == {commitment: ()}
    assert trainer.role.accepted.available() == []


async def test_accepted_work_is_put_aside_when_it_is_reported_before_it_was_used(build: Build) -> None:
    network = await build(validators=1)
    trainer = await network.trainer()
    commitment = await accepted_work_before_due(network)
    accepted = trainer.role.accepted
    await trainer.member.sync()
    await accepted.look(Version(1))
    assert len(accepted.groups[commitment]) == 2

    fault = Fault(network.run, commitment, 0, 8, Digest(bytes(32)))
    signature = sign(network.validators[0], trainer.member.domain, fault)
    await network.connect(network.validators[0]).report(network.run, [fault], [signature])
    await trainer.member.sync()
    await accepted.look(Version(1))

    assert network.state(commitment) == State.FAULTED
    assert accepted.groups == {}


async def test_a_validator_that_stalls_or_drips_holds_up_neither_a_signed_list_nor_the_other_submissions(
    build: Build,
) -> None:
    network = await build(validators=2, quorum=1)
    trainer = await network.trainer()
    commitments = [await network.commit_honestly(await network.worker(number)) for number in (100, 200)]
    honest = await network.validator(1)
    domain = Domain(network.chain.chain_id, network.chain.runs.address)
    for commitment in commitments:
        signature = sign(network.validators[1], domain, Batch(network.run, (commitment,)))
        honest.role.closer.batcher.batches[commitment] = SignedBatch(network.run, (commitment,), (signature,))
    network.chain.mine(20)
    async with tar_pit() as url:
        await network.connect(network.validators[0]).set_endpoint(url)
        await trainer.member.sync()
        await trainer.role.accepted.look(Version(1))
        assert set(trainer.role.accepted.groups) == set(commitments)
        assert not trainer.role.accepted.pauses.resting  # as the stalling one would, had it been waited for

        honest.role.closer.batcher.batches.clear()
        trainer.role.accepted.groups.clear()
        trainer.role.accepted.asked.clear()
        await trainer.role.accepted.look(Version(1))
        assert len(trainer.role.accepted.pauses.resting) == 1
        assert trainer.role.accepted.groups == {}


async def accepted_work_before_due(network: Network) -> Digest:
    """Signed 9 s after its commit, 3 s before it can be settled."""
    (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)
    await until(lambda: network.is_signed(commitment))
    return commitment


async def test_a_batch_is_no_acceptance_unless_a_quorum_of_this_runs_validators_signed_this_list(
    build: Build,
) -> None:
    network = await build(validators=4)  # quorum 3
    accepted = (await network.trainer()).role.accepted
    about, other = Digest(b"\x01" * 32), Digest(b"\x02" * 32)
    domain = Domain(network.chain.chain_id, network.chain.runs.address)

    def signed(keys: list[Any], listed: tuple[Digest, ...] = (about, other), where: Domain = domain) -> SignedBatch:
        signatures = tuple(sign(each, where, Batch(network.run, (about, other))) for each in keys)
        return SignedBatch(network.run, listed, signatures)

    four = network.validators
    assert accepted.is_quorum(signed(four[:3]), about)
    assert accepted.is_quorum(signed([*four[1:], key(77)]), other)
    assert not accepted.is_quorum(signed(four[:2]), about)
    assert not accepted.is_quorum(signed([four[0], four[0], four[1], four[1]]), about)
    assert not accepted.is_quorum(signed([*four[:2], key(77), key(78)]), about)
    assert not accepted.is_quorum(signed(four), Digest(b"\x03" * 32))
    assert not accepted.is_quorum(signed(four, listed=(other, about)), about)
    assert not accepted.is_quorum(signed(four, where=Domain(1, domain.contract)), about)
    assert not accepted.is_quorum(replace(signed(four), run=network.run + 1), about)  # type: ignore[arg-type]
    broken = replace(signed(four), signatures=(bytes(65), *signed(four).signatures))
    assert not accepted.is_quorum(broken, about)
