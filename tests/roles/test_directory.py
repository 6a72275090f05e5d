"""Who is asked for weights and files."""

from ledger.base import Address, Allocated, Block
from node.roles.directory import file_holders, weight_sources
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
