"""Every ledger: submissions, and how those without a fault end."""

from dataclasses import replace

import pytest
from eth_abi import encode as abi_encode
from eth_account import Account
from eth_utils import keccak

from ledger.base import Claimed, Expired, Settled, State, SubmissionState, Submitted, Version
from ledger.errors import (
    AlreadySubmitted,
    InsufficientStake,
    NodeNotAuthorized,
    NothingToClaim,
    PotTooSmall,
    Reverted,
    SlotMismatch,
    TooManyOpen,
    VersionBehind,
    VersionNotOpen,
)
from ledger.messages import Batch, sign
from tests.ledger.contract.scene import (
    BEACON,
    BOND,
    DUE,
    PENALTY,
    POT,
    PRICE,
    ROOT,
    STAKE,
    UNITS,
    WINDOWS,
    ZERO,
    Scene,
    said,
)


async def test_a_submission_reserves_its_pay_and_locks_its_bonds(scene: Scene) -> None:
    commitment = await scene.submit()

    (event,) = await scene.events(Submitted)
    node, domain = scene.node.account, scene.domain
    types = ["bytes32", *["uint256", "address"] * 2, *["uint256"] * 2, "bytes32", "uint256", "bytes32"]
    tag = b"in/commitment/1".ljust(32, b"\0")
    place = (tag, domain.chain_id, domain.contract, scene.run, node, 0, 0)
    assert commitment == keccak(abi_encode(types, (*place, ROOT, UNITS, BEACON)))
    assert event == Submitted(event.block, scene.run, commitment, node, Version(0), 0, ROOT, UNITS, BEACON)
    assert await scene.owner.submission(scene.run, commitment) == SubmissionState(
        node, event.block.time, UNITS, State.SUBMITTED
    )
    assert await scene.pot() == (60, 30, 1)
    assert await scene.allocation() == (STAKE, PENALTY + BOND)
    assert await scene.owner.open_of(scene.run, node) == 1
    assert await scene.owner.slot(scene.run, Version(0), node) == 1


async def test_an_unknown_submission_has_no_state(scene: Scene) -> None:
    assert await scene.owner.submission(scene.run, ROOT) == SubmissionState(ZERO, 0, 0, State.NONE)


async def test_a_slot_is_taken_once(scene: Scene) -> None:
    commitment = await scene.submit(0)

    with pytest.raises(AlreadySubmitted) as again:
        await scene.submit(0)
    with pytest.raises(SlotMismatch) as other:
        await scene.node_elsewhere.submit(scene.run, Version(0), 0, ROOT, UNITS + 1, BEACON)
    with pytest.raises(SlotMismatch) as skipped:
        await scene.submit(2)

    assert again.value.values == {"commitment": commitment}
    assert other.value.values == {"expected": 0, "actual": 1}
    assert skipped.value.values == {"expected": 2, "actual": 1}


async def test_a_version_is_open_from_its_publication_until_grace_after_it_left_the_window(scene: Scene) -> None:
    with pytest.raises(VersionNotOpen) as unpublished:
        await scene.submit(version=1)
    for version in (1, 2):
        await scene.world.advance(30)
        await scene.owner.publish_checkpoint(scene.run, Version(version), ROOT)
    await scene.submit(0)  # within grace of version 2, with which version 0 left the window of 1
    await scene.world.advance(WINDOWS.grace + 1)

    with pytest.raises(VersionNotOpen) as left:
        await scene.submit(1)

    assert unpublished.value.values == {"version": 1, "latest": 0}
    assert left.value.values == {"version": 0, "latest": 2}


async def test_a_node_never_goes_back_to_an_earlier_version(scene: Scene) -> None:
    await scene.world.advance(30)
    await scene.owner.publish_checkpoint(scene.run, Version(1), ROOT)
    await scene.submit(0, version=1)

    with pytest.raises(VersionBehind) as refusal:
        await scene.submit(0, version=0)

    assert refusal.value.values == {"version": 0, "current": 1}


async def test_only_so_many_submissions_of_a_node_are_open_at_once(scene: Scene) -> None:
    await scene.submit(0)
    await scene.submit(1)

    with pytest.raises(TooManyOpen) as refusal:
        await scene.submit(2)

    assert refusal.value.values == {"open": 2, "maxOpen": 2}


async def test_a_submission_needs_sound_units_a_pot_a_stake_and_an_authorized_node(scene: Scene) -> None:
    with pytest.raises(Reverted) as too_many:
        await scene.submit(units=21)
    with pytest.raises(Reverted, match="InvalidUnits"):
        await scene.submit(units=0)
    with pytest.raises(NodeNotAuthorized) as stranger:
        await scene.owner.submit(scene.run, Version(0), 0, ROOT, UNITS, BEACON)
    await scene.provider.unstake(scene.run, scene.node.account, STAKE - PENALTY - BOND + 1)
    with pytest.raises(InsufficientStake) as bare:
        await scene.submit()

    assert said(too_many) == ("InvalidUnits", {"units": 21, "maxUnits": 20})
    assert stranger.value.values == {"node": scene.owner.account}
    assert bare.value.values == {"wanted": PENALTY + BOND, "available": PENALTY + BOND - 1}
    assert await scene.pot() == (POT, 0, 0)
    assert await scene.owner.slot(scene.run, Version(0), scene.node.account) == 0


async def test_a_pot_too_small_for_the_pay_refuses_the_submission(scene: Scene) -> None:
    await scene.submit(0, units=20)

    with pytest.raises(PotTooSmall) as refusal:
        await scene.submit(1, units=11)

    assert refusal.value.values == {"wanted": 33, "available": 30}


async def test_the_pay_of_a_settled_submission_can_be_claimed_once(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.world.advance(DUE)
    await scene.settle(commitment)
    await scene.settle(commitment)
    provider = scene.provider.account
    owed = await scene.owner.rewards(provider)

    await scene.provider.claim()
    with pytest.raises(NothingToClaim) as refusal:
        await scene.provider.claim()

    (settled,) = await scene.events(Settled)
    (claimed,) = (event for event in await scene.events(Claimed) if event.provider == provider)
    assert owed == UNITS * PRICE == await scene.owner.token_balance(provider)
    assert settled == Settled(settled.block, scene.run, commitment, provider, 30)
    assert claimed == Claimed(claimed.block, provider, 30)
    assert refusal.value.values == {"provider": provider}
    assert await scene.state(commitment) == State.SETTLED
    assert (await scene.pot(), await scene.allocation()) == ((60, 0, 0), (STAKE, 0))


async def test_what_is_not_due_or_not_known_is_skipped(scene: Scene) -> None:
    commitment = await scene.submit()

    await scene.settle(commitment, ROOT)

    assert await scene.state(commitment) == State.SUBMITTED
    assert await scene.owner.rewards(scene.provider.account) == 0


async def test_only_a_quorum_of_ascending_validators_settles(scene: Scene) -> None:
    stranger, commitments = Account.create(), [ROOT]
    alien = sign(stranger, scene.domain, Batch(scene.run, (ROOT,)))
    first, second = scene.batch(ROOT)
    foreign = sign(scene.validators[0], replace(scene.domain, chain_id=1), Batch(scene.run, (ROOT,)))
    cases = {
        "QuorumNotReached": [first],
        "SignersNotAscending": [second, first],
        "NotValidator": sorted([alien, second], key=lambda s: int(stranger.address, 16) if s == alien else 2**160),
        "InvalidSignature": [first[:64], second],
    }

    for name, signatures in cases.items():
        with pytest.raises(Reverted, match=name):
            await scene.owner.settle(scene.run, commitments, signatures)
    with pytest.raises(Reverted, match="SignersNotAscending"):
        await scene.owner.settle(scene.run, commitments, [first, first])
    with pytest.raises(Reverted):
        await scene.owner.settle(scene.run, commitments, [foreign, second])


@pytest.mark.parametrize("size", [0, 65])
async def test_a_batch_has_1_to_64_entries(scene: Scene, size: int) -> None:
    with pytest.raises(Reverted) as refusal:
        await scene.owner.settle(scene.run, [ROOT] * size, scene.batch(*[ROOT] * size))
    with pytest.raises(Reverted, match="BatchSize"):
        await scene.owner.conclude(scene.run, [ROOT] * size)

    assert said(refusal) == ("BatchSize", {"size": size})


async def test_an_expired_submission_returns_its_bond_and_is_paid_no_more(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.owner.conclude(scene.run, [commitment])
    early = await scene.state(commitment)
    await scene.world.advance(WINDOWS.settle_by + 1)

    await scene.settle(commitment)
    await scene.owner.conclude(scene.run, [commitment, ROOT])

    (expired,) = await scene.events(Expired)
    assert (early, await scene.state(commitment)) == (State.SUBMITTED, State.EXPIRED)
    assert expired == Expired(expired.block, scene.run, commitment)
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE, 0))
    assert await scene.owner.open_of(scene.run, scene.node.account) == 0
