"""Puts the contracts on a chain: token, staking, coordinator, in this order, each bound to the one before."""

from collections.abc import Callable
from typing import Final

from eth_account.signers.local import LocalAccount

from ledger.base import TOKEN_UNIT, Address
from ledger.deployment import Deployment
from ledger.endpoints import Endpoints
from ledger.errors import Unreachable
from ledger.interfaces import interface
from ledger.signing import Call
from ledger.transactions import Sender, open_sender

FAUCET_CAP: Final = 1_000_000 * TOKEN_UNIT


async def deploy(
    rpc_url: str,
    account: LocalAccount,
    unbonding_seconds: int,
    faucet_cap: int = FAUCET_CAP,
    faucet_cooldown_seconds: int = 0,
    confirmations: int = 0,
    begun: Callable[[], None] = lambda: None,
) -> Deployment:
    """Deploys the three contracts from `account`, which pays.

    Args:
        unbonding_seconds: between unstaking and withdrawing; runs need theirs to be shorter.
        faucet_cap: most base units of one faucet call.
        faucet_cooldown_seconds: between two faucet calls of one address; 0 for none.
        confirmations: blocks that clients of this deployment wait for.
        begun: called once the chain has answered, before anything is sent.

    Raises: LedgerError.
    """
    endpoints = Endpoints([rpc_url], None)
    try:
        chain_id = await endpoints.chain_id()
        sender = await open_sender(endpoints, account, None, chain_id, confirmations)
        try:
            begun()
            token, block = await _create(sender, "StakeToken", faucet_cap, faucet_cooldown_seconds)
            staking, _ = await _create(sender, "Staking", token, unbonding_seconds)
            coordinator, _ = await _create(sender, "RunCoordinator", staking)
            await sender.send(Call("setCoordinator", staking, interface("Staking").call("setCoordinator", coordinator)))
        finally:
            await sender.close()
    finally:
        await endpoints.close()
    return Deployment(chain_id, token, staking, coordinator, block, confirmations)


async def _create(sender: Sender, contract: str, *arguments: object) -> tuple[Address, int]:
    """Address and block of a new contract."""
    mined = await sender.send(Call(f"deploy {contract}", None, interface(contract).creation(*arguments)))
    if mined.created is None:
        raise Unreachable("a receipt of a deployment that names no contract")
    return mined.created, mined.receipt.block.number
