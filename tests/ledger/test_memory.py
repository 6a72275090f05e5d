"""What only the ledger in memory has: blocks that a simulation ends, and sums that no sequence of calls breaks."""

import asyncio

import pytest
from eth_account import Account
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import (
    Address,
    Block,
    Digest,
    EndpointSet,
    Fault,
    RunId,
    RunParams,
    SlashExecuted,
    Version,
    Voided,
    Windows,
)
from ledger.errors import Reverted
from ledger.memory import MemoryChain, MemoryLedger
from ledger.messages import Batch, Domain, NodeAuthorization, sign

WINDOWS = Windows(available=2, audit=2, settle_by=12, confirm=3, contest=4, panel=1, grace=5)
OWNER, PROVIDER, NODE, *KEYS = (Account.from_key(bytes([value]) * 32) for value in range(1, 6))
VALIDATORS = sorted(KEYS, key=lambda account: int(account.address, 16))
ROOT = Digest(bytes(32))


async def test_a_write_waits_for_its_block_where_a_simulation_ends_them() -> None:
    chain = MemoryChain(automine=False)
    start = chain.head
    writes = [asyncio.create_task(MemoryLedger(chain, account).set_endpoint("http://a.example")) for account in KEYS]
    await asyncio.sleep(0)
    reader = MemoryLedger(chain, OWNER)
    assert (await reader.head(), await reader.events(RunId(1), 0, 10)) == (start, [])

    head = chain.mine(5)

    receipts = await asyncio.gather(*writes)
    shared = Block(start.number + 1, start.time + 1)
    assert [receipt.block for receipt in receipts] == [shared, shared]
    assert len({receipt.transaction for receipt in receipts}) == 2
    assert head == Block(start.number + 2, start.time + 5)
    assert await reader.events(RunId(1), 0, 10) == [
        EndpointSet(shared, Address(account.address), "http://a.example") for account in KEYS
    ]


def test_time_never_stands_still() -> None:
    with pytest.raises(ValueError, match="at least 1 second"):
        MemoryChain().mine(0)


async def test_a_beacon_is_the_hash_of_the_mix_hash_two_blocks_later_once_confirmed() -> None:
    chain = MemoryChain(confirmations=3)
    ledger = MemoryLedger(chain, OWNER)
    for _ in range(4):
        chain.mine()
    early = await ledger.beacon(0)

    chain.mine()

    assert early is None
    assert await ledger.beacon(0) == keccak(chain.blocks.mix_hash(2))
    assert await ledger.beacon(1) is None


async def test_a_faucet_has_a_cap_and_a_pause() -> None:
    chain = MemoryChain(faucet_cap=10, faucet_cooldown=60)
    ledger = MemoryLedger(chain, OWNER)
    with pytest.raises(Reverted, match=r"FaucetCapExceeded\(amount=11, cap=10\)"):
        await ledger.faucet(11)
    receipt = await ledger.faucet(10)
    with pytest.raises(Reverted, match=rf"FaucetCoolingDown\(readyAt={receipt.block.time + 60}\)"):
        await ledger.faucet(1)

    chain.mine(60)
    await ledger.faucet(1)

    assert await ledger.token_balance(ledger.account) == 11


async def test_a_refused_write_makes_no_block_and_a_poor_account_sends_no_coins() -> None:
    chain = MemoryChain()
    ledger = MemoryLedger(chain, OWNER)

    with pytest.raises(Reverted, match="InsufficientNativeBalance"):
        await ledger.transfer_native(Address(NODE.address), 1)

    assert chain.head.number == 0


async def test_a_provider_has_at_most_16_unbondings_at_once() -> None:
    ledger = MemoryLedger(MemoryChain(), OWNER)
    await ledger.faucet(17)
    await ledger.stake(17)
    zero = Address("0x" + "00" * 20)
    for _ in range(16):
        await ledger.unstake(RunId(0), zero, 1)

    with pytest.raises(Reverted, match="TooManyUnbondings"):
        await ledger.unstake(RunId(0), zero, 1)


# --- Sums


def _params() -> RunParams:
    return RunParams(
        trainer=Address(OWNER.address),
        validators=tuple(Address(validator.address) for validator in VALIDATORS),
        quorum=2,
        price_per_unit=7,
        submission_bond=3,
        fault_bond=0,
        penalty=50,
        max_units=5,
        max_open=3,
        async_level=1,
        checkpoint_interval=0,
        trainer_delay=0,
        windows=WINDOWS,
    )


class Play:
    """One run, driven by a list of moves that may well be refused."""

    def __init__(self) -> None:
        self.chain = MemoryChain(unbonding=30)
        self.owner, self.provider, self.node = (
            MemoryLedger(self.chain, account) for account in (OWNER, PROVIDER, NODE)
        )
        self.domain = Domain(self.chain.chain_id, self.owner.coordinator)
        self.run = RunId(1)
        self.commitments: list[Digest] = [ROOT]
        self.minted = 0

    async def open(self) -> None:
        for ledger in (self.owner, self.provider):
            await ledger.faucet(1000)
            self.minted += 1000
        await self.owner.create_run(_params(), b"{}")
        await self.owner.fund_run(self.run, 200)
        await self.owner.publish_checkpoint(self.run, Version(0), ROOT)
        await self.provider.stake(300)
        deadline = self.chain.head.time + 100
        message = NodeAuthorization(self.provider.account, self.node.account, 0, deadline)
        signature = sign(NODE, Domain(self.chain.chain_id, self.owner.staking), message)
        await self.provider.authorize_node(self.node.account, deadline, signature)
        await self.provider.allocate(self.run, self.node.account, 250)

    async def move(self, name: str, number: int) -> None:
        commitment = self.commitments[-1 - number % min(3, len(self.commitments))]
        match name:
            case "submit":
                slot = await self.owner.slot(self.run, Version(0), self.node.account)
                units = 1 + number % 5
                receipt = await self.node.submit(self.run, Version(0), slot, ROOT, units, ROOT)
                events = await self.owner.events(self.run, receipt.block.number, receipt.block.number)
                self.commitments.append(events[0].commitment)
            case "settle":
                signatures = [sign(key, self.domain, Batch(self.run, (commitment,))) for key in VALIDATORS]
                await self.owner.settle(self.run, [commitment], signatures)
            case "slashing" | "cheap":
                fault = Fault(self.run, commitment, 0, 8 if name == "slashing" else 6, ROOT)
                keys = [VALIDATORS[number // 3 % 2]] if name == "slashing" else VALIDATORS
                await self.owner.report(self.run, [fault] * len(keys), [sign(key, self.domain, fault) for key in keys])
            case "conclude":
                await self.owner.conclude(self.run, self.commitments)
            case "unstake":
                await self.provider.unstake(self.run, self.node.account, 1 + number)
            case "withdraw":
                await self.provider.withdraw()
            case "claim":
                await self.provider.claim()
            case _:
                self.chain.mine(1 + number % 4)

    async def require_sums(self) -> None:
        state = await self.owner.run_state(self.run)
        provider, node = self.provider.account, self.node.account
        rewards = await self.owner.rewards(provider)
        allocation = await self.owner.allocation(self.run, node)
        submissions = [await self.owner.submission(self.run, entry) for entry in self.commitments[1:]]
        open_ = [entry for entry in submissions if not entry.state.final]
        holders = (self.owner.coordinator, self.owner.staking, self.owner.account, provider)
        coordinator, staking, *others = [await self.owner.token_balance(who) for who in holders]
        events = await self.owner.events(self.run, 0, self.chain.head.number)
        burnt = sum(event.amount for event in events if isinstance(event, SlashExecuted))
        burnt += sum(event.bond for event in events if isinstance(event, Voided))

        assert coordinator == state.pot + state.reserved + rewards
        assert state.reserved == 7 * sum(entry.units for entry in open_)
        assert state.open == len(open_) == await self.owner.open_of(self.run, node) <= 3
        assert allocation.locked == 53 * len(open_) <= allocation.amount
        assert await self.owner.free_stake(provider) + allocation.amount <= staking
        assert coordinator + staking + sum(others) + burnt == self.minted


_MOVES = ["submit", "submit", "settle", "slashing", "slashing", "cheap", "conclude", "unstake", "withdraw", "claim"]


@given(st.lists(st.tuples(st.sampled_from([*_MOVES, "wait", "wait"]), st.integers(0, 13)), max_size=30))
@settings(max_examples=20, deadline=None)
async def test_no_sequence_of_calls_breaks_the_sums(moves: list[tuple[str, int]]) -> None:
    play = Play()
    await play.open()
    for name, number in moves:
        before = play.chain.head
        try:
            await play.move(name, number)
        except Reverted:
            assert play.chain.head == before
        await play.require_sums()
