"""Every ledger: stake, who may work for whom, and what backs a node."""

import pytest
from eth_account import Account

from ledger.base import Allocated, Allocation, RunId, Unbonding
from ledger.errors import InsufficientStake, NodeTaken, Reverted
from tests.ledger.contract.scene import BOND, PENALTY, STAKE, ZERO, Scene, World, authorize, said


async def test_stake_leaves_the_wallet_and_returns_after_unbonding(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    await ledger.faucet(50)
    await ledger.stake(40)
    assert (await ledger.token_balance(ledger.account), await ledger.free_stake(ledger.account)) == (10, 40)

    await ledger.unstake(RunId(0), ZERO, 15)
    unbonding = [await ledger.unbonding_of(ledger.account)]
    with pytest.raises(Reverted) as early:
        await ledger.withdraw()
    await world.advance(await ledger.unbonding_seconds())
    unbonding.append(await ledger.unbonding_of(ledger.account))
    await ledger.withdraw()
    unbonding.append(await ledger.unbonding_of(ledger.account))

    assert said(early) == ("NothingToWithdraw", {"provider": ledger.account})
    assert unbonding == [Unbonding(15, 0), Unbonding(15, 15), Unbonding(0, 0)]
    assert (await ledger.token_balance(ledger.account), await ledger.free_stake(ledger.account)) == (25, 25)


async def test_nobody_stakes_or_unstakes_more_than_there_is(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    await ledger.faucet(50)

    with pytest.raises(Reverted, match="ERC20InsufficientBalance"):
        await ledger.stake(51)
    with pytest.raises(Reverted, match="ZeroAmount"):
        await ledger.stake(0)
    with pytest.raises(InsufficientStake) as refusal:
        await ledger.unstake(RunId(0), ZERO, 1)

    assert refusal.value.values == {"wanted": 1, "available": 0}


async def test_a_node_key_works_for_the_provider_that_it_agreed_to_and_no_other(world: World) -> None:
    first, second = await world.ledger_for(Account.create()), await world.ledger_for(Account.create())
    node = Account.create()
    assert await first.provider_of(node.address) is None

    await authorize(first, node)
    with pytest.raises(NodeTaken) as refusal:
        await authorize(second, node)

    assert refusal.value.values == {"node": node.address, "provider": first.account}
    assert (await second.provider_of(node.address), await second.node_nonce(node.address)) == (first.account, 1)


async def test_an_authorization_by_another_key_or_past_its_deadline_is_refused(world: World) -> None:
    ledger, node, stranger = await world.ledger_for(Account.create()), Account.create(), Account.create()

    with pytest.raises(Reverted) as forged:
        await authorize(ledger, node, signer=stranger)
    with pytest.raises(Reverted, match="DeadlinePassed"):
        await authorize(ledger, node, seconds=-1)

    assert said(forged) == ("InvalidSignature", {"recovered": stranger.address, "expected": node.address})


async def test_only_free_stake_of_the_nodes_own_provider_backs_it(scene: Scene) -> None:
    node = scene.node.account
    (allocated,) = await scene.events(Allocated)

    with pytest.raises(Reverted) as stranger:
        await scene.owner.allocate(scene.run, node, 1)
    with pytest.raises(InsufficientStake) as spent:
        await scene.provider.allocate(scene.run, node, 1)

    assert said(stranger) == ("NotProvider", {"caller": scene.owner.account, "node": node})
    assert spent.value.values == {"wanted": 1, "available": 0}
    assert await scene.owner.allocation(scene.run, node) == Allocation(STAKE, 0, allocated.block.number)
    assert allocated == Allocated(allocated.block, scene.run, scene.provider.account, node, STAKE)


async def test_what_is_locked_cannot_be_unstaked(scene: Scene) -> None:
    await scene.submit()

    with pytest.raises(InsufficientStake) as refusal:
        await scene.provider.unstake(scene.run, scene.node.account, STAKE - PENALTY - BOND + 1)
    await scene.provider.unstake(scene.run, scene.node.account, STAKE - PENALTY - BOND)

    assert refusal.value.values["available"] == STAKE - PENALTY - BOND
    assert await scene.allocation() == (PENALTY + BOND, PENALTY + BOND)
