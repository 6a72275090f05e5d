"""Claiming what a provider's nodes have earned."""

from collections.abc import Awaitable, Callable

from ledger.base import Ledger
from ledger.errors import NothingToClaim, Unconfirmed, Unreachable
from node.log import event, warn

CLAIM_TRIES = 5


async def claim_patiently(provider: Ledger, wait: Callable[[], Awaitable[None]]) -> None:
    """As `claim_rewards`, tried again after a `wait` where the chain does not answer.

    Raises: Unreachable, Unconfirmed: it did not for long.
    """
    for _ in range(CLAIM_TRIES - 1):
        try:
            await claim_rewards(provider)
        except (Unreachable, Unconfirmed) as error:
            warn("not claimed, trying again", reason=error)
            await wait()
        else:
            return
    await claim_rewards(provider)


async def claim_rewards(provider: Ledger) -> int:
    """Claims what is settled for the provider; the amount, 0 if nothing was.

    Raises: Unreachable, Unconfirmed.
    """
    await provider.finish_earlier()  # perhaps a claim
    amount = await provider.rewards(provider.account)
    if not amount:
        return 0
    try:
        await provider.claim()
    except NothingToClaim:  # another node of the same wallet was faster
        return 0
    event("claimed", provider=provider.account, amount=amount)
    return amount
