"""Who is asked for weights and files."""

from ledger.base import Address, Allocated, Block
from node.roles.directory import core_urls, file_holders, keeps, weight_sources
from tests.roles.network import TRAINER, Build
from tests.roles.stage import key


async def test_nodes_are_asked_for_weights_only_with_the_stake_of_a_submission_and_after_all_others(
    build: Build,
) -> None:
    network = await build(validators=2)
    record = (await network.validator()).member.record
    params, nobody = record.run.params, Address("0x" + "00" * 20)
    covering = params.penalty + params.submission_bond
    rich, poor, relay = (Address(key(number).address) for number in (200, 300, 400))
    for node, amount in ((poor, covering - 1), (rich, covering)):
        record.allocated[node] = Allocated(Block(1, 1), network.run, node, node, amount)
    record.relays.add(relay)
    everybody = (rich, poor, relay, *params.validators, params.trainer)
    record.endpoints = {who: f"http://{who}/" for who in everybody}

    expected = [relay, *params.validators, Address(TRAINER.address), rich]
    assert weight_sources(record, nobody) == tuple(f"http://{who}" for who in expected)
    assert weight_sources(record, relay) == tuple(f"http://{who}" for who in expected[1:])


async def test_the_worker_is_the_first_holder_of_its_file(build: Build) -> None:
    network = await build(validators=2)
    record = (await network.validator()).member.record
    node, params = Address(key(200).address), record.run.params
    record.endpoints = {who: f"http://{who}" for who in (*params.validators, params.trainer, node)}

    asked = file_holders(record, node, params.validators[0])
    assert asked == tuple(f"http://{who}" for who in (node, params.validators[1], params.trainer))


async def test_who_made_a_file_validators_and_the_trainer_are_to_hold_it(build: Build) -> None:
    network = await build(validators=2)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await worker.member.sync()
    record, params = worker.member.record, worker.member.record.run.params
    relay, stranger = Address(key(300).address), Address(key(400).address)
    record.relays.add(relay)

    holding = (worker.member.account, *params.validators, params.trainer, relay, stranger)
    assert [keeps(record, commitment, who) for who in holding] == [True, True, True, True, False, False]


async def test_relays_validators_and_the_trainer_are_those_whom_the_run_names(build: Build) -> None:
    network = await build(validators=2)
    record = (await network.validator()).member.record
    params, relay, stranger = record.run.params, Address(key(300).address), Address(key(400).address)
    record.relays.add(relay)
    record.endpoints = {who: f"http://{who}/" for who in (relay, *params.validators, params.trainer, stranger)}

    assert core_urls(record, relay) == {f"http://{who}" for who in (*params.validators, params.trainer)}
