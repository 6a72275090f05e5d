"""Gas: how much of the chain's coin a role is to have, and what it, or a command, says when that does not suffice."""

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.base import Address, Ledger
from ledger.errors import InsufficientNativeBalance
from node.errors import ConfigError

GAS_FLOOR_WEI = 2 * 10**16  # below this a node key is topped up: thousands of submissions on an OP-stack chain
GAS_TOP_UP_WEI = 5 * 10**16
GAS_ASKED_FOR = f"send it at least {2 * GAS_TOP_UP_WEI / 1e18} ETH of the test network"
SENT_AND_GOES_ON = f"{GAS_ASKED_FOR}, and run this again: it goes on from there"


async def require_gas(ledger: Ledger) -> None:
    """Before anything else, that the account of a role which was never given any is told so.

    Raises: ConfigError: it holds nothing to pay gas with.
    """
    if not await ledger.native_balance(ledger.account):
        raise ConfigError(f"{ledger.account} cannot pay gas: {GAS_ASKED_FOR}")


@contextmanager
def paying_gas(account: Address, advice: str = SENT_AND_GOES_ON) -> Iterator[None]:
    """Around what `account` sends. Raises: ConfigError: what it, or who else was to pay, holds does not suffice."""
    try:
        yield
    except InsufficientNativeBalance as error:
        who, held = error.values.get("account") or account, error.values.get("balance")
        how_much = "" if held == 0 else f" ({str(error).removeprefix(f'{error.name}: ')})"
        raise ConfigError(f"{who} cannot pay gas{how_much}: {advice}") from error
