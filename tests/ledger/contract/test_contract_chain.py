"""Every ledger: time, beacons, coins and events of the chain."""

from eth_account import Account

from ledger.base import Submitted
from tests.ledger.contract.scene import Scene, World


async def test_time_moves_with_blocks_and_the_first_block_at_a_time_is_found(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    before = await ledger.head()

    await world.advance(100)

    after = await ledger.head()
    assert after.number > before.number
    assert after.time >= before.time + 100
    assert await ledger.block_at(after.time) == after
    assert (await ledger.block_at(before.time + 1)).number == before.number + 1
    assert await ledger.block_at(after.time + 1000) is None


async def test_a_beacon_is_known_two_blocks_later_and_stays(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    number = (await ledger.head()).number
    assert await ledger.beacon(number) is None

    for _ in range(2 + ledger.confirmations):
        await world.advance(1)

    beacon = await ledger.beacon(number)
    assert beacon is not None
    assert len(beacon) == 32
    await world.advance(1)
    assert await ledger.beacon(number) == beacon
    assert await ledger.beacon(number + 1) not in (None, beacon)


async def test_a_transfer_moves_coins(world: World) -> None:
    ledger, to = await world.ledger_for(Account.create()), Account.create().address

    receipt = await ledger.transfer_native(to, 5_000)

    assert await ledger.native_balance(to) == 5_000
    assert receipt.block.number == (await ledger.head()).number
    assert (len(receipt.transaction), receipt.gas_used) == (32, 21_000)


async def test_events_are_those_of_the_blocks_asked_for_in_order(scene: Scene) -> None:
    commitment = await scene.submit()
    (submitted,) = await scene.events(Submitted)
    number = submitted.block.number

    assert await scene.owner.events(scene.run, number, number) == [submitted]
    assert await scene.owner.events(scene.run, number + 1, number + 100) == []
    assert submitted.commitment == commitment
    assert [event.block.number for event in await scene.events(object)] == sorted(
        event.block.number for event in await scene.events(object)
    )
