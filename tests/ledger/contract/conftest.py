"""The scene of every sentence about ledgers, on each of their implementations."""

import pytest
from eth_account import Account

from ledger.base import Version
from tests.ledger.contract.scene import POT, ROOT, SPEC, STAKE, Scene, World, authorize, new_validators, run_params


@pytest.fixture
async def scene(world: World) -> Scene:
    owner, provider = await world.ledger_for(Account.create()), await world.ledger_for(Account.create())
    node, validators = Account.create(), new_validators()
    await owner.faucet(POT)
    run = await owner.create_run(run_params(owner.account, validators), SPEC)
    await owner.fund_run(run, POT)
    await owner.publish_checkpoint(run, Version(0), ROOT)
    await provider.faucet(STAKE)
    await provider.stake(STAKE)
    await authorize(provider, node)
    await provider.allocate(run, node.address, STAKE)
    ledgers = [await world.ledger_for(node) for _ in range(2)]
    return Scene(world, owner, provider, *ledgers, validators, run)
