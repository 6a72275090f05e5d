"""Every ledger: a run from its creation to its end, and what its owner and trainer may do."""

import hashlib
from dataclasses import replace

import pytest
from eth_account import Account

from ledger.base import CheckpointPublished, EndpointSet, Ledger, RelaySet, RunEnded, RunId, RunState, State, Version
from ledger.errors import CheckpointTooSoon, NotTrainer, Reverted, RunIsEnded, VersionMismatch
from tests.ledger.contract.scene import (
    DUE,
    EVIDENCE,
    POT,
    ROOT,
    SPEC,
    WINDOWS,
    ZERO,
    Scene,
    World,
    new_validators,
    run_params,
    said,
)


async def test_a_run_is_read_as_it_was_created(scene: Scene) -> None:
    run = await scene.provider.run(scene.run)

    assert (run.id, run.owner, run.spec) == (scene.run, scene.owner.account, SPEC)
    assert run.params == run_params(scene.owner.account, scene.validators)
    assert run.spec_digest == hashlib.sha256(SPEC).digest()
    assert await scene.owner.run_count() >= scene.run
    assert await scene.owner.run_state(scene.run) == RunState(1, POT, 0, 0, 0)
    (published,) = await scene.events(CheckpointPublished)
    assert scene.owner.origin_block <= run.created_block < published.block.number


async def test_an_unknown_run_is_said(scene: Scene) -> None:
    unknown = RunId(10**9)

    with pytest.raises(Reverted) as read:
        await scene.owner.run(unknown)
    with pytest.raises(Reverted) as written:
        await scene.owner.end_run(unknown)

    assert said(read) == said(written) == ("UnknownRun", {"run": unknown})


@pytest.mark.parametrize(
    ("changes", "name", "values"),
    [
        ({"trainer": ZERO}, "ZeroAddress", {}),
        ({"max_units": 0}, "InvalidMaxUnits", {"maxUnits": 0}),
        ({"quorum": 0}, "InvalidQuorum", {"quorum": 0, "validators": 3}),
        ({"quorum": 4}, "InvalidQuorum", {"quorum": 4, "validators": 3}),
        ({"validators": ()}, "InvalidValidators", {}),
        ({"windows": replace(WINDOWS, settle_by=300)}, "InvalidWindows", {"settleBy": 300, "least": 301}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_run_that_could_not_work_is_refused(
    world: World, changes: dict[str, object], name: str, values: dict[str, object]
) -> None:
    ledger = await world.ledger_for(Account.create())

    with pytest.raises(Reverted) as refusal:
        await ledger.create_run(replace(run_params(ledger.account, new_validators()), **changes), SPEC)

    assert said(refusal) == (name, values)


async def test_validators_out_of_order_and_windows_beyond_the_unbonding_are_refused(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    params, unbonding = run_params(ledger.account, new_validators()), await ledger.unbonding_seconds()
    contest = unbonding - WINDOWS.settle_by - WINDOWS.confirm - WINDOWS.panel

    with pytest.raises(Reverted, match="InvalidValidators"):
        await ledger.create_run(replace(params, validators=params.validators[::-1]), SPEC)
    with pytest.raises(Reverted) as refusal:
        await ledger.create_run(replace(params, windows=replace(WINDOWS, contest=contest)), SPEC)
    await ledger.create_run(replace(params, windows=replace(WINDOWS, contest=contest - 1)), SPEC)

    assert said(refusal) == ("UnbondingTooShort", {"unbonding": unbonding, "least": unbonding + 1})


async def test_checkpoints_come_from_the_trainer_in_order_and_not_too_soon(scene: Scene) -> None:
    with pytest.raises(NotTrainer) as stranger:
        await scene.provider.publish_checkpoint(scene.run, Version(1), ROOT)
    with pytest.raises(VersionMismatch) as skipped:
        await scene.owner.publish_checkpoint(scene.run, Version(2), ROOT)
    with pytest.raises(CheckpointTooSoon) as early:
        await scene.owner.publish_checkpoint(scene.run, Version(1), ROOT)
    await scene.world.advance(30)
    await scene.owner.publish_checkpoint(scene.run, Version(1), EVIDENCE)

    first, second = await scene.events(CheckpointPublished)
    assert stranger.value.values == {"caller": scene.provider.account, "trainer": scene.owner.account}
    assert skipped.value.values == {"expected": 1, "actual": 2}
    assert early.value.values == {"allowedAt": first.block.time + 30}
    assert second == CheckpointPublished(second.block, scene.run, Version(1), EVIDENCE)


async def test_relays_are_the_owners_to_name_and_endpoints_anybodys(scene: Scene) -> None:
    relay, url = scene.provider.account, "http://relay.example:4000/" + "a" * 230

    await scene.owner.set_relay(scene.run, relay, True)
    with pytest.raises(Reverted, match="NotOwner"):
        await scene.provider.set_relay(scene.run, relay, True)
    await scene.provider.set_endpoint(url)
    with pytest.raises(Reverted) as long:
        await scene.provider.set_endpoint(url + "a")

    (relay_set,) = await scene.events(RelaySet)
    own = [event for event in await scene.events(EndpointSet) if event.who == relay]
    assert relay_set == RelaySet(relay_set.block, scene.run, relay, True)
    assert own == [EndpointSet(own[0].block, relay, url)]
    assert said(long) == ("EndpointTooLong", {"length": 257})


async def test_an_ended_run_takes_submissions_for_grace_and_nothing_else(scene: Scene) -> None:
    with pytest.raises(Reverted) as stranger:
        await scene.provider.end_run(scene.run)
    await scene.owner.end_run(scene.run)
    for call in (
        scene.owner.end_run(scene.run),
        scene.owner.publish_checkpoint(scene.run, Version(1), ROOT),
        scene.owner.fund_run(scene.run, 1),
    ):
        with pytest.raises(RunIsEnded):
            await call
    commitment = await scene.submit(0)
    await scene.world.advance(WINDOWS.grace + 1)
    with pytest.raises(RunIsEnded) as closed:
        await scene.submit(1)
    await scene.world.advance(DUE)
    await scene.settle(commitment)

    (ended,) = await scene.events(RunEnded)
    assert said(stranger) == ("NotOwner", {"caller": scene.provider.account, "owner": scene.owner.account})
    assert closed.value.values == {"run": scene.run}
    assert ended == RunEnded(ended.block, scene.run)
    assert (await scene.owner.run_state(scene.run)).ended_at == ended.block.time
    assert await scene.state(commitment) == State.SETTLED


async def test_the_rest_of_the_pot_is_the_owners_once_the_run_is_closed_and_nothing_is_open(scene: Scene) -> None:
    refused = []

    async def withdraw(who: Ledger) -> None:
        with pytest.raises(Reverted) as refusal:
            await who.withdraw_pot(scene.run)
        refused.append(said(refusal))

    commitment = await scene.submit()
    await withdraw(scene.provider)
    await scene.owner.end_run(scene.run)
    await withdraw(scene.owner)
    await scene.world.advance(max(WINDOWS.grace + 1, DUE))
    await withdraw(scene.owner)
    await scene.settle(commitment)
    (rest, _, _), before = await scene.pot(), await scene.owner.token_balance(scene.owner.account)
    await scene.owner.withdraw_pot(scene.run)

    assert refused == [
        ("NotOwner", {"caller": scene.provider.account, "owner": scene.owner.account}),
        ("RunNotEnded", {"run": scene.run}),
        ("RunStillOpen", {"run": scene.run, "open": 1}),
    ]
    assert rest > 0
    assert await scene.owner.token_balance(scene.owner.account) == before + rest
    assert await scene.pot() == (0, 0, 0)
