"""What a provider does with its stake, and an owner with its run. Amounts are base units, as decimal text."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ledger.base import NOBODY, Address, Allocation, Ledger, RunId, amount_text
from ledger.errors import Reverted
from node.errors import ConfigError
from node.log import event

FREE = RunId(0)  # with `NOBODY`, the contract's name for stake that backs no node
RUNS_AT_ONCE = 16  # connections to one endpoint: ledger.provider's CONNECTIONS


@dataclass(frozen=True, slots=True)
class Backing:
    """Stake that backs `node` in `run`, or, by default, free stake."""

    run: RunId = FREE
    node: Address = NOBODY

    async def available(self, ledger: Ledger) -> int:
        """Base units that nothing locks."""
        if self.node == NOBODY:
            return await ledger.free_stake(ledger.account)
        held = await ledger.allocation(self.run, self.node)
        return held.amount - held.locked


async def stake_summary(ledger: Ledger, provider: Address, node: Address | None, run: RunId | None) -> dict[str, Any]:
    """What `provider` has at stake, and what of it backs `node`, in `run` or, without one, in every run.

    `allocations` is None where no node is known.
    """
    unbonding = await ledger.unbonding_of(provider)
    found: dict[str, Any] = {
        "provider": provider,
        "tokens": str(await ledger.token_balance(provider)),
        "free": str(await ledger.free_stake(provider)),
        "unbonding": str(unbonding.pending),
        "ready_to_withdraw": str(unbonding.ready),
        "unbonding_seconds": await ledger.unbonding_seconds(),
    }
    if node is not None and run is not None:
        return found | _backing(run, await ledger.allocation(run, node), node)
    return found | {"allocations": None if node is None else await _allocations(ledger, node)}


async def _allocations(ledger: Ledger, node: Address) -> list[dict[str, Any]]:
    """Of every run in which stake backs `node`, `RUNS_AT_ONCE` looked at at a time."""
    found = []
    runs = [RunId(number) for number in range(1, await ledger.run_count() + 1)]
    for first in range(0, len(runs), RUNS_AT_ONCE):
        some = runs[first : first + RUNS_AT_ONCE]
        held = await asyncio.gather(*(ledger.allocation(run, node) for run in some))
        found += [_backing(run, each, node) for run, each in zip(some, held, strict=True) if each.amount]
    return found


def _backing(run: RunId, held: Allocation, node: Address) -> dict[str, Any]:
    return {"run": run, "node": node, "allocated": str(held.amount), "locked": str(held.locked)}


async def add_stake(ledger: Ledger, amount: int) -> dict[str, Any]:
    """Stakes `amount` base units of the account's tokens. Raises: ConfigError: it has fewer."""
    have = await ledger.token_balance(ledger.account)
    if have < amount:
        raise ConfigError(
            f"{ledger.account} has {amount_text(have)}, not {amount_text(amount)}: have some sent, or take test tokens "
            "with `intellect-node faucet`"
        )
    await ledger.stake(amount)
    return {"staked": str(amount), "free": str(await ledger.free_stake(ledger.account))}


async def unbond(ledger: Ledger, backing: Backing, amount: int | None) -> dict[str, Any]:
    """Begins to take `amount` base units out of `backing`, None all that can be; says from when it can be withdrawn.

    Raises: ConfigError: less than that is there and not locked.
    """
    available = await backing.available(ledger)
    wanted = available if amount is None else amount
    if not wanted or wanted > available:
        raise ConfigError(
            f"{amount_text(wanted)} cannot be unbonded: {amount_text(available)} are there and not locked by open "
            "submissions. `intellect-node stake show` has the figures; what is locked is free once its submissions are "
            "final"
        )
    receipt = await ledger.unstake(backing.run, backing.node, wanted)
    return {"unbonding": str(wanted), "ready_at": receipt.block.time + await ledger.unbonding_seconds()}


async def withdraw(ledger: Ledger) -> dict[str, Any]:
    """Takes what has unbonded back into the wallet: 0 where nothing is ready, and says from when something is."""
    before = await ledger.unbonding_of(ledger.account)
    withdrawn = 0
    if before.ready:
        tokens = await ledger.token_balance(ledger.account)
        await ledger.withdraw()
        withdrawn = await ledger.token_balance(ledger.account) - tokens
    result: dict[str, Any] = {"withdrawn": str(withdrawn), "still_unbonding": str(before.pending - withdrawn)}
    if not before.pending:
        event("nothing unbonds: `intellect-node stake unbond` begins to take stake back")
    elif before.pending > withdrawn:
        seconds = await ledger.unbonding_seconds()
        event(f"the rest is not ready: each part is {seconds} s after its `stake unbond`, which said when")
        result["all_ready_by"] = (await ledger.head()).time + seconds
    return result


async def withdraw_pot(ledger: Ledger, run: RunId) -> dict[str, Any]:
    """Takes what is left of an ended run's pot back to its owner. Raises: ConfigError: not yet, or not its owner."""
    amount = (await ledger.run_state(run)).pot
    reasons = {
        "NotOwner": "only its owner takes the pot back",
        "RunNotEnded": "it has not ended (`run end`), or submissions are taken until `grace` after that",
        "RunStillOpen": "submissions are open: wait until they are final",
    }
    with _explained(f"the pot of run {run} stays where it is", reasons):
        await ledger.withdraw_pot(run)
    return {"run": run, "withdrawn": str(amount)}


async def end_run(ledger: Ledger, run: RunId) -> dict[str, Any]:
    """Ends a run for ever. Raises: ConfigError: it has ended, or is neither the account's nor trained by it."""
    reasons = {
        "NotOwner": "only its owner or its trainer ends it: use the wallet of one of them",
        "RunIsEnded": "it has ended already (`run withdraw` takes its pot back)",
    }
    with _explained(f"run {run} is not ended by this", reasons):
        receipt = await ledger.end_run(run)
    return {"run": run, "ended_at": receipt.block.time}


async def approve_relay(ledger: Ledger, run: RunId, relay: Address, approved: bool) -> dict[str, Any]:
    """Approves a relay, or takes that back. Raises: ConfigError: the run is another's."""
    reasons = {"NotOwner": "only its owner approves relays: use the owner's wallet"}
    with _explained(f"the relays of run {run} stay as they are", reasons):
        await ledger.set_relay(run, relay, approved)
    return {"relay": relay, "approved": approved}


@contextmanager
def _explained(what: str, reasons: Mapping[str, str]) -> Iterator[None]:
    """Raises: ConfigError: the contract refused, by an error that `reasons` has in words of users."""
    try:
        yield
    except Reverted as refusal:
        if refusal.name not in reasons:
            raise
        raise ConfigError(f"{what}: {reasons[refusal.name]} ({refusal})") from refusal
