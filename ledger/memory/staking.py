"""Stake and its token in memory, by the rules of `Staking.sol`, `StakeToken.sol` and `Unbondings.sol`.

Every function checks all before it changes anything, so that a revert leaves no trace.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from ledger.base import NOBODY, Address, Allocated, Allocation, RunId, Unbonding
from ledger.errors import InvalidSignature, reverted
from ledger.memory.blocks import Call
from ledger.messages import Domain, NodeAuthorization, recover

MAX_UNBONDINGS: Final = 16  # Unbondings.LIMIT


class Token:
    """Balances of the stake token, and its faucet."""

    def __init__(self, faucet_cap: int, faucet_cooldown: int) -> None:
        self.balances: defaultdict[Address, int] = defaultdict(int)
        self._cap = faucet_cap
        self._cooldown = faucet_cooldown
        self._ready_at: dict[Address, int] = {}

    def faucet(self, call: Call, amount: int) -> None:
        if amount > self._cap:
            raise reverted("FaucetCapExceeded", {"amount": amount, "cap": self._cap})
        ready_at = self._ready_at.get(call.sender, 0)
        if call.block.time < ready_at:
            raise reverted("FaucetCoolingDown", {"readyAt": ready_at})
        self._ready_at[call.sender] = call.block.time + self._cooldown
        self.balances[call.sender] += amount

    def move(self, source: Address, to: Address, amount: int) -> None:
        balance = self.balances[source]
        if amount > balance:
            raise reverted("ERC20InsufficientBalance", {"sender": source, "balance": balance, "needed": amount})
        self.balances[source] -= amount
        self.balances[to] += amount

    def burn(self, source: Address, amount: int) -> None:
        self.balances[source] -= amount


@dataclass(slots=True)
class _Backing:
    amount: int = 0
    locked: int = 0
    first_block: int = 0


@dataclass(slots=True)
class _Unbonding:
    run: RunId
    node: Address
    ready_at: int
    amount: int


class Staking:
    """Stake of providers, the nodes that work for them, and what backs each node in each run."""

    def __init__(self, token: Token, address: Address, chain_id: int, unbonding: int) -> None:
        self.address = address
        self.unbonding = unbonding  # seconds
        self.free: defaultdict[Address, int] = defaultdict(int)
        self.providers: dict[Address, Address] = {}  # by node
        self.nonces: defaultdict[Address, int] = defaultdict(int)
        self._token = token
        self._domain = Domain(chain_id, address)
        self._backings: defaultdict[tuple[RunId, Address], _Backing] = defaultdict(_Backing)
        self._unbondings: defaultdict[Address, list[_Unbonding]] = defaultdict(list)

    def allocation(self, run: RunId, node: Address) -> Allocation:
        backing = self._backings[run, node]
        return Allocation(backing.amount, backing.locked, backing.first_block)

    def unlocked(self, run: RunId, node: Address) -> int:
        backing = self._backings[run, node]
        return backing.amount - backing.locked

    def unbonding_of(self, provider: Address, time: int) -> Unbonding:
        entries = self._unbondings[provider]
        return Unbonding(sum(e.amount for e in entries), sum(e.amount for e in entries if time >= e.ready_at))

    # --- Stake

    def stake(self, call: Call, amount: int) -> None:
        _require_amount(amount)
        self._token.move(call.sender, self.address, amount)
        self.free[call.sender] += amount

    def allocate(self, call: Call, run: RunId, node: Address, amount: int) -> None:
        self._require_provider(call, node)
        _require_amount(amount)
        _require_stake(amount, self.free[call.sender])
        self.free[call.sender] -= amount
        backing = self._backings[run, node]
        backing.amount += amount
        backing.first_block = backing.first_block or call.block.number
        call.emit(Allocated(call.block, run, call.sender, node, amount))

    def unstake(self, call: Call, run: RunId, node: Address, amount: int) -> None:
        _require_amount(amount)
        entries = self._unbondings[call.sender]
        if len(entries) == MAX_UNBONDINGS:
            raise reverted("TooManyUnbondings", {"limit": MAX_UNBONDINGS})
        if run == 0 and node == NOBODY:
            _require_stake(amount, self.free[call.sender])
            self.free[call.sender] -= amount
        else:
            self._require_provider(call, node)
            _require_stake(amount, self.unlocked(run, node))
            self._backings[run, node].amount -= amount
        entries.append(_Unbonding(run, node, call.block.time + self.unbonding, amount))

    def withdraw(self, call: Call) -> int:
        entries = self._unbondings[call.sender]
        amount = sum(entry.amount for entry in entries if call.block.time >= entry.ready_at)
        if amount == 0:
            raise reverted("NothingToWithdraw", {"provider": call.sender})
        self._unbondings[call.sender] = [entry for entry in entries if call.block.time < entry.ready_at]
        self._token.move(self.address, call.sender, amount)
        return amount

    def authorize_node(self, call: Call, node: Address, deadline: int, signature: bytes) -> None:
        if node in self.providers:
            raise reverted("NodeTaken", {"node": node, "provider": self.providers[node]})
        if call.block.time > deadline:
            raise reverted("DeadlinePassed", {"deadline": deadline, "time": call.block.time})
        message = NodeAuthorization(call.sender, node, self.nonces[node], deadline)
        try:
            recovered = recover(self._domain, message, signature)
        except InvalidSignature:
            recovered = NOBODY
        if recovered != node or node == NOBODY:
            raise reverted("InvalidSignature", {"recovered": recovered, "expected": node})
        self.nonces[node] += 1
        self.providers[node] = call.sender

    # --- The coordinator's

    def require_unlocked(self, run: RunId, node: Address, amount: int) -> None:
        _require_stake(amount, self.unlocked(run, node))

    def lock(self, run: RunId, node: Address, amount: int) -> None:
        self._backings[run, node].locked += amount

    def unlock(self, run: RunId, node: Address, amount: int) -> None:
        self._backings[run, node].locked -= amount

    def slash(self, call: Call, run: RunId, node: Address, amount: int) -> int:
        """Burns up to `amount`: first of what backs the node unlocked, then of what left it and still unbonds."""
        slashed = min(amount, self.unlocked(run, node))
        self._backings[run, node].amount -= slashed
        entries = self._unbondings[self.providers[node]]
        for entry in reversed(list(entries)):
            if entry.run == run and entry.node == node and call.block.time < entry.ready_at:
                part = min(amount - slashed, entry.amount)
                entry.amount -= part
                slashed += part
        self._unbondings[self.providers[node]] = [entry for entry in entries if entry.amount]
        self._token.burn(self.address, slashed)
        return slashed

    def _require_provider(self, call: Call, node: Address) -> None:
        if self.providers.get(node) != call.sender:
            raise reverted("NotProvider", {"caller": call.sender, "node": node})


def _require_amount(amount: int) -> None:
    if amount == 0:
        raise reverted("ZeroAmount")


def _require_stake(wanted: int, available: int) -> None:
    if wanted > available:
        raise reverted("InsufficientStake", {"wanted": wanted, "available": available})
