"""The `Ledger` over a `MemoryChain`, as one account sees it."""

from collections.abc import Callable, Sequence

from eth_account.signers.base import BaseAccount

from ledger.base import (
    Address,
    Allocation,
    Block,
    Digest,
    Event,
    Fault,
    Receipt,
    Run,
    RunId,
    RunParams,
    RunState,
    SubmissionState,
    Unbonding,
    Version,
)
from ledger.memory.blocks import Call
from ledger.memory.chain import MemoryChain
from ledger.memory.submissions import Entry


class MemoryLedger:
    """`chain` as `account` sees it. Gas costs nothing; errors are those of the contracts, by name and operands."""

    def __init__(self, chain: MemoryChain, account: BaseAccount) -> None:
        self._chain = chain
        self._account = Address(account.address)

    @property
    def chain_id(self) -> int:
        return self._chain.chain_id

    @property
    def coordinator(self) -> Address:
        return self._chain.runs.address

    @property
    def staking(self) -> Address:
        return self._chain.staking.address

    @property
    def account(self) -> Address:
        return self._account

    @property
    def origin_block(self) -> int:
        return 0

    @property
    def confirmations(self) -> int:
        return self._chain.confirmations

    async def finish_earlier(self) -> int:
        """A transaction is mined at once: nothing is ever on its way."""
        return 0

    # --- Chain

    async def head(self) -> Block:
        return self._chain.head

    async def block_at(self, time: int) -> Block | None:
        return self._chain.blocks.block_at(time)

    async def beacon(self, block_number: int) -> Digest | None:
        return self._chain.blocks.beacon(block_number, self._chain.confirmations)

    async def native_balance(self, who: Address) -> int:
        return self._chain.native[who]

    async def token_balance(self, who: Address) -> int:
        return self._chain.token.balances[who]

    # --- Runs

    async def run(self, run: RunId) -> Run:
        return self._chain.runs.record(run).run

    async def run_count(self) -> int:
        return self._chain.runs.count

    async def run_state(self, run: RunId) -> RunState:
        return self._chain.runs.state(run)

    async def slot(self, run: RunId, version: Version, node: Address) -> int:
        return self._chain.submissions.slots[run, version, node]

    async def open_of(self, run: RunId, node: Address) -> int:
        return self._chain.submissions.open_of(run, node)

    async def submission(self, run: RunId, commitment: Digest) -> SubmissionState:
        return self._chain.submissions.state(run, commitment)

    async def rewards(self, provider: Address) -> int:
        return self._chain.submissions.rewards[provider]

    async def events(self, run: RunId, first_block: int, last_block: int) -> list[Event]:
        return self._chain.blocks.events(run, first_block, last_block)

    def doubt(self) -> bool:
        """There is one chain, and it is asked itself."""
        return False

    # --- Stake

    async def free_stake(self, provider: Address) -> int:
        return self._chain.staking.free[provider]

    async def allocation(self, run: RunId, node: Address) -> Allocation:
        return self._chain.staking.allocation(run, node)

    async def provider_of(self, node: Address) -> Address | None:
        return self._chain.staking.providers.get(node)

    async def node_nonce(self, node: Address) -> int:
        return self._chain.staking.nonces[node]

    async def unbonding_seconds(self) -> int:
        return self._chain.staking.unbonding

    async def unbonding_of(self, provider: Address) -> Unbonding:
        return self._chain.staking.unbonding_of(provider, (await self.head()).time)

    # --- Writes

    async def faucet(self, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.token.faucet(call, amount))

    async def transfer_native(self, to: Address, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.transfer_native(call, to, amount))

    async def stake(self, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.staking.stake(call, amount))

    async def unstake(self, run: RunId, node: Address, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.staking.unstake(call, run, node, amount))

    async def withdraw(self) -> Receipt:
        return await self._send(self._chain.staking.withdraw)

    async def authorize_node(self, node: Address, deadline: int, signature: bytes) -> Receipt:
        return await self._send(lambda call: self._chain.staking.authorize_node(call, node, deadline, signature))

    async def allocate(self, run: RunId, node: Address, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.staking.allocate(call, run, node, amount))

    async def create_run(self, params: RunParams, spec: bytes) -> RunId:
        run, _ = await self._chain.blocks.execute(
            self._account, lambda call: self._chain.runs.create(call, params, spec)
        )
        return run

    async def fund_run(self, run: RunId, amount: int) -> Receipt:
        return await self._send(lambda call: self._chain.runs.fund(call, run, amount))

    async def set_relay(self, run: RunId, relay: Address, approved: bool) -> Receipt:
        return await self._send(lambda call: self._chain.runs.set_relay(call, run, relay, approved))

    async def set_endpoint(self, url: str) -> Receipt:
        return await self._send(lambda call: self._chain.runs.set_endpoint(call, url))

    async def publish_checkpoint(self, run: RunId, version: Version, manifest_root: Digest) -> Receipt:
        return await self._send(lambda call: self._chain.runs.publish(call, run, version, manifest_root))

    async def submit(
        self, run: RunId, version: Version, slot: int, root: Digest, units: int, beacon: Digest
    ) -> Receipt:
        entry = Entry(run, version, slot, root, units, beacon)
        return await self._send(lambda call: self._chain.submissions.submit(call, entry))

    async def settle(self, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> Receipt:
        return await self._send(lambda call: self._chain.submissions.settle(call, run, commitments, signatures))

    async def report(self, run: RunId, faults: Sequence[Fault], signatures: Sequence[bytes]) -> Receipt:
        return await self._send(lambda call: self._chain.submissions.report(call, run, faults, signatures))

    async def conclude(self, run: RunId, commitments: Sequence[Digest]) -> Receipt:
        return await self._send(lambda call: self._chain.submissions.conclude(call, run, commitments))

    async def claim(self) -> Receipt:
        return await self._send(self._chain.submissions.claim)

    async def end_run(self, run: RunId) -> Receipt:
        return await self._send(lambda call: self._chain.runs.end(call, run))

    async def withdraw_pot(self, run: RunId) -> Receipt:
        return await self._send(lambda call: self._chain.runs.withdraw_pot(call, run))

    async def close(self) -> None:
        """Nothing is held open."""

    async def _send(self, effect: Callable[[Call], object]) -> Receipt:
        _, receipt = await self._chain.blocks.execute(self._account, effect)
        return receipt
