"""What every ledger does, whatever stands behind it: each sentence holds for all that the `world` fixture offers."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pytest
from eth_abi import encode as abi_encode
from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils import keccak

from ledger.base import (
    WHOLE_FILE,
    Address,
    Allocated,
    Allocation,
    CheckpointPublished,
    Claimed,
    Convicted,
    Digest,
    EndpointSet,
    Event,
    Expired,
    Fault,
    Ledger,
    RelaySet,
    Reported,
    RunEnded,
    RunId,
    RunParams,
    RunState,
    Settled,
    SlashExecuted,
    State,
    SubmissionState,
    Submitted,
    Unbonding,
    Version,
    Voided,
    Windows,
)
from ledger.errors import (
    AlreadySubmitted,
    CheckpointTooSoon,
    InsufficientStake,
    NodeNotAuthorized,
    NodeTaken,
    NothingToClaim,
    NotTrainer,
    PotTooSmall,
    Reverted,
    RunIsEnded,
    SlotMismatch,
    TooManyOpen,
    VersionBehind,
    VersionMismatch,
    VersionNotOpen,
)
from ledger.messages import Batch, Domain, NodeAuthorization, sign

SPEC = b'{"name":"contract"}'
ROOT, BEACON, EVIDENCE = (Digest(bytes([value]) * 32) for value in (0x11, 0x22, 0x33))
ZERO = Address("0x" + "00" * 20)
WINDOWS = Windows(available=100, audit=100, settle_by=500, confirm=100, contest=200, panel=50, grace=60)
DUE = 200  # available + audit
UNITS, PRICE, POT = 10, 3, 90  # the pot pays three submissions of 10 units
PENALTY, BOND, STAKE = 1000, 100, 4000  # the stake backs three open submissions, of which two are permitted


class World(Protocol):
    async def ledger_for(self, account: LocalAccount) -> Ledger:
        """The chain as `account` sees it, with coins for gas."""

    async def advance(self, seconds: int) -> None:
        """Ends a block at least `seconds` after the latest one."""


@dataclass(frozen=True)
class Scene:
    """A funded run at version 0 with three validators, two of which are a quorum, and a backed node."""

    world: World
    owner: Ledger  # also the trainer
    provider: Ledger
    node: Ledger
    node_elsewhere: Ledger  # the same key on a machine that knows nothing of the first
    validators: tuple[LocalAccount, ...]
    run: RunId

    @property
    def domain(self) -> Domain:
        return Domain(self.owner.chain_id, self.owner.coordinator)

    async def submit(self, slot: int = 0, version: int = 0, units: int = UNITS) -> Digest:
        receipt = await self.node.submit(self.run, Version(version), slot, ROOT, units, BEACON)
        events = await self.owner.events(self.run, receipt.block.number, receipt.block.number)
        (commitment,) = (event.commitment for event in events if isinstance(event, Submitted))
        return commitment

    def batch(self, *commitments: Digest, signers: Sequence[int] = (0, 1)) -> list[bytes]:
        return [sign(self.validators[i], self.domain, Batch(self.run, commitments)) for i in signers]

    async def settle(self, *commitments: Digest) -> None:
        await self.owner.settle(self.run, commitments, self.batch(*commitments))

    def fault(self, commitment: Digest, check: int, leaf: int = 1) -> Fault:
        return Fault(self.run, commitment, leaf, check, EVIDENCE)

    async def report(self, commitment: Digest, check: int, signers: Sequence[int], leaf: int = 1) -> None:
        fault = self.fault(commitment, check, leaf)
        signatures = [sign(self.validators[i], self.domain, fault) for i in signers]
        await self.owner.report(self.run, [fault] * len(signers), signatures)

    async def state(self, commitment: Digest) -> State:
        return (await self.owner.submission(self.run, commitment)).state

    async def allocation(self) -> tuple[int, int]:
        allocation = await self.owner.allocation(self.run, self.node.account)
        return allocation.amount, allocation.locked

    async def pot(self) -> tuple[int, int, int]:
        state = await self.owner.run_state(self.run)
        return state.pot, state.reserved, state.open

    async def events(self, kind: type[Event]) -> list[Event]:
        head = await self.owner.head()
        return [event for event in await self.owner.events(self.run, 0, head.number) if isinstance(event, kind)]


def _params(trainer: Address, validators: Sequence[LocalAccount]) -> RunParams:
    return RunParams(
        trainer=trainer,
        validators=tuple(validator.address for validator in validators),
        quorum=2,
        price_per_unit=PRICE,
        submission_bond=BOND,
        fault_bond=0,
        penalty=PENALTY,
        max_units=20,
        max_open=2,
        async_level=1,
        checkpoint_interval=30,
        trainer_delay=0,
        windows=WINDOWS,
    )


def _validators() -> tuple[LocalAccount, ...]:
    return tuple(sorted((Account.create() for _ in range(3)), key=lambda account: int(account.address, 16)))


async def _authorize(provider: Ledger, node: LocalAccount, seconds: int = 3600, signer: LocalAccount | None = None):
    deadline = (await provider.head()).time + seconds
    message = NodeAuthorization(provider.account, node.address, await provider.node_nonce(node.address), deadline)
    signature = sign(signer or node, Domain(provider.chain_id, provider.staking), message)
    return await provider.authorize_node(node.address, deadline, signature)


@pytest.fixture
async def scene(world: World) -> Scene:
    owner, provider = await world.ledger_for(Account.create()), await world.ledger_for(Account.create())
    node, validators = Account.create(), _validators()
    await owner.faucet(POT)
    run = await owner.create_run(_params(owner.account, validators), SPEC)
    await owner.fund_run(run, POT)
    await owner.publish_checkpoint(run, Version(0), ROOT)
    await provider.faucet(STAKE)
    await provider.stake(STAKE)
    await _authorize(provider, node)
    await provider.allocate(run, node.address, STAKE)
    ledgers = [await world.ledger_for(node) for _ in range(2)]
    return Scene(world, owner, provider, *ledgers, validators, run)


def _names(refusal: pytest.ExceptionInfo[Reverted]) -> tuple[str, dict[str, object]]:
    return refusal.value.name, refusal.value.values


# --- Chain


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


# --- Stake


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

    assert _names(early) == ("NothingToWithdraw", {"provider": ledger.account})
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

    await _authorize(first, node)
    with pytest.raises(NodeTaken) as refusal:
        await _authorize(second, node)

    assert refusal.value.values == {"node": node.address, "provider": first.account}
    assert (await second.provider_of(node.address), await second.node_nonce(node.address)) == (first.account, 1)


async def test_an_authorization_by_another_key_or_past_its_deadline_is_refused(world: World) -> None:
    ledger, node, stranger = await world.ledger_for(Account.create()), Account.create(), Account.create()

    with pytest.raises(Reverted) as forged:
        await _authorize(ledger, node, signer=stranger)
    with pytest.raises(Reverted, match="DeadlinePassed"):
        await _authorize(ledger, node, seconds=-1)

    assert _names(forged) == ("InvalidSignature", {"recovered": stranger.address, "expected": node.address})


async def test_only_free_stake_of_the_nodes_own_provider_backs_it(scene: Scene) -> None:
    node = scene.node.account
    (allocated,) = await scene.events(Allocated)

    with pytest.raises(Reverted) as stranger:
        await scene.owner.allocate(scene.run, node, 1)
    with pytest.raises(InsufficientStake) as spent:
        await scene.provider.allocate(scene.run, node, 1)

    assert _names(stranger) == ("NotProvider", {"caller": scene.owner.account, "node": node})
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


# --- Runs


async def test_a_run_is_read_as_it_was_created(scene: Scene) -> None:
    run = await scene.provider.run(scene.run)

    assert (run.id, run.owner, run.spec) == (scene.run, scene.owner.account, SPEC)
    assert run.params == _params(scene.owner.account, scene.validators)
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

    assert _names(read) == _names(written) == ("UnknownRun", {"run": unknown})


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
        await ledger.create_run(replace(_params(ledger.account, _validators()), **changes), SPEC)

    assert _names(refusal) == (name, values)


async def test_validators_out_of_order_and_windows_beyond_the_unbonding_are_refused(world: World) -> None:
    ledger = await world.ledger_for(Account.create())
    params, unbonding = _params(ledger.account, _validators()), await ledger.unbonding_seconds()
    contest = unbonding - WINDOWS.settle_by - WINDOWS.confirm - WINDOWS.panel

    with pytest.raises(Reverted, match="InvalidValidators"):
        await ledger.create_run(replace(params, validators=params.validators[::-1]), SPEC)
    with pytest.raises(Reverted) as refusal:
        await ledger.create_run(replace(params, windows=replace(WINDOWS, contest=contest)), SPEC)
    await ledger.create_run(replace(params, windows=replace(WINDOWS, contest=contest - 1)), SPEC)

    assert _names(refusal) == ("UnbondingTooShort", {"unbonding": unbonding, "least": unbonding + 1})


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
    assert _names(long) == ("EndpointTooLong", {"length": 257})


# --- Submissions


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

    assert _names(too_many) == ("InvalidUnits", {"units": 21, "maxUnits": 20})
    assert stranger.value.values == {"node": scene.owner.account}
    assert bare.value.values == {"wanted": PENALTY + BOND, "available": PENALTY + BOND - 1}
    assert await scene.pot() == (POT, 0, 0)
    assert await scene.owner.slot(scene.run, Version(0), scene.node.account) == 0


async def test_a_pot_too_small_for_the_pay_refuses_the_submission(scene: Scene) -> None:
    await scene.submit(0, units=20)

    with pytest.raises(PotTooSmall) as refusal:
        await scene.submit(1, units=11)

    assert refusal.value.values == {"wanted": 33, "available": 30}


# --- Settlement


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

    assert _names(refusal) == ("BatchSize", {"size": size})


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


# --- Faults


async def test_a_fault_by_a_stranger_or_of_another_run_or_check_is_refused(scene: Scene) -> None:
    commitment, stranger = await scene.submit(), Account.create()
    fault, signer = scene.fault(commitment, 8), scene.validators[0]
    other = replace(fault, run=RunId(scene.run + 1))

    with pytest.raises(Reverted) as unknown_signer:
        await scene.owner.report(scene.run, [fault], [sign(stranger, scene.domain, fault)])
    with pytest.raises(Reverted) as another_run:
        await scene.owner.report(scene.run, [other], [sign(signer, scene.domain, other)])
    for check in (5, 11, 255):
        with pytest.raises(Reverted) as unknown_check:
            await scene.report(commitment, check, [0, 1])
        assert _names(unknown_check) == ("UnknownCheck", {"check": check})
    with pytest.raises(Reverted) as lengths:
        await scene.owner.report(scene.run, [fault], [])

    assert _names(unknown_signer) == ("NotValidator", {"signer": stranger.address})
    assert _names(another_run) == ("WrongRun", {"expected": scene.run, "actual": scene.run + 1})
    assert _names(lengths) == ("LengthMismatch", {"left": 1, "right": 0})
    assert await scene.state(commitment) == State.SUBMITTED


async def test_one_fault_freezes_and_a_validator_votes_once_a_leaf(scene: Scene) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, 8, [0])
    await scene.report(commitment, 9, [0])
    await scene.world.advance(DUE)
    await scene.settle(commitment)

    (reported,) = await scene.events(Reported)
    validator = scene.validators[0].address
    assert reported == Reported(reported.block, scene.run, commitment, validator, 1, 8, EVIDENCE, 1)
    assert await scene.state(commitment) == State.FAULTED
    assert await scene.events(Convicted) == []


async def test_a_quorum_of_faults_is_executed_only_after_the_contest_window(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 8, [0], leaf=WHOLE_FILE)
    await scene.report(commitment, 9, [2], leaf=WHOLE_FILE)
    (convicted,) = await scene.events(Convicted)
    executable_at = convicted.block.time + WINDOWS.contest
    assert convicted == Convicted(convicted.block, scene.run, commitment, WHOLE_FILE, 9, executable_at)

    await scene.owner.conclude(scene.run, [commitment])
    early = await scene.state(commitment)
    await scene.world.advance(WINDOWS.contest)
    receipt = await scene.provider.conclude(scene.run, [commitment])

    assert (early, await scene.state(commitment)) == (State.FAULTED, State.SLASHED)
    node = scene.node.account
    assert await scene.events(SlashExecuted) == [
        SlashExecuted(receipt.block, scene.run, commitment, node, PENALTY, receipt.transaction)
    ]
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE - PENALTY, 0))


async def test_faults_on_two_leaves_are_no_quorum(scene: Scene) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, 8, [0], leaf=1)
    await scene.report(commitment, 8, [1], leaf=2)

    assert await scene.events(Convicted) == []
    assert [event.count for event in await scene.events(Reported)] == [1, 1]


async def test_a_frozen_submission_without_a_quorum_is_voided_with_its_bonds_back(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 9, [0])
    await scene.world.advance(DUE)

    await scene.owner.conclude(scene.run, [commitment])
    early = await scene.state(commitment)
    await scene.world.advance(WINDOWS.confirm + 1)
    await scene.report(commitment, 9, [1])  # too late for the leaf
    await scene.owner.conclude(scene.run, [commitment])

    (voided,) = await scene.events(Voided)
    assert early == State.FAULTED  # until `confirm` after its audit is due
    assert voided == Voided(voided.block, scene.run, commitment, 255, 0)
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE, 0))


async def test_a_report_at_once_does_not_close_its_leaf_before_the_others_have_audited_it(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 8, [0])  # by an accomplice of the node
    await scene.world.advance(DUE)

    await scene.owner.conclude(scene.run, [commitment])
    await scene.report(commitment, 8, [1])
    (convicted,) = await scene.events(Convicted)
    await scene.world.advance(WINDOWS.contest)
    await scene.owner.conclude(scene.run, [commitment])

    reported = await scene.events(Reported)
    assert [event.count for event in reported] == [1, 2]
    assert reported[1].block.time - reported[0].block.time > WINDOWS.confirm
    assert convicted.executable_at == reported[1].block.time + WINDOWS.contest
    assert await scene.state(commitment) == State.SLASHED


@pytest.mark.parametrize("check", [0, 6, 10])
async def test_a_quorum_on_a_cheap_check_burns_the_submission_bond_alone(scene: Scene, check: int) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, check, [0, 1])

    (voided,) = await scene.events(Voided)
    assert voided == Voided(voided.block, scene.run, commitment, check, BOND)
    assert await scene.state(commitment) == State.VOIDED
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE - BOND, 0))


async def test_a_cheap_check_needs_its_quorum_in_one_report_signers_ascending(scene: Scene) -> None:
    commitment = await scene.submit()

    with pytest.raises(Reverted) as lone:
        await scene.report(commitment, 6, [0])
    with pytest.raises(Reverted, match="SignersNotAscending"):
        await scene.report(commitment, 6, [1, 0])

    assert _names(lone) == ("QuorumNotReached", {"signatures": 1, "quorum": 2})
    assert await scene.state(commitment) == State.SUBMITTED


async def test_one_bad_entry_of_a_report_undoes_all_of_it(scene: Scene) -> None:
    commitment = await scene.submit()
    good, bad = scene.fault(commitment, 8), scene.fault(commitment, 8, leaf=2)
    signatures = [sign(scene.validators[0], scene.domain, good), sign(Account.create(), scene.domain, bad)]

    with pytest.raises(Reverted, match="NotValidator"):
        await scene.owner.report(scene.run, [good, bad], signatures)

    assert await scene.state(commitment) == State.SUBMITTED


# --- End


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
    assert _names(stranger) == ("NotOwner", {"caller": scene.provider.account, "owner": scene.owner.account})
    assert closed.value.values == {"run": scene.run}
    assert ended == RunEnded(ended.block, scene.run)
    assert (await scene.owner.run_state(scene.run)).ended_at == ended.block.time
    assert await scene.state(commitment) == State.SETTLED


async def test_the_rest_of_the_pot_is_the_owners_once_the_run_is_closed_and_nothing_is_open(scene: Scene) -> None:
    refused = []

    async def withdraw(who: Ledger) -> None:
        with pytest.raises(Reverted) as refusal:
            await who.withdraw_pot(scene.run)
        refused.append(_names(refusal))

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
