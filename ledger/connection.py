"""From an RPC URL to a ledger: which contracts, which chain, which key."""

from collections.abc import Callable, Sequence
from pathlib import Path

from eth_account.signers.local import LocalAccount

from ledger.deployment import Deployment, for_chain
from ledger.endpoints import Endpoints
from ledger.errors import NotDeployed
from ledger.evm import EvmLedger

JournalPath = Callable[[int, str, str], Path]  # (chain id, coordinator, account)


async def open_ledger(
    rpc_urls: Sequence[str], file: Path | None, account: LocalAccount | None, journal: JournalPath | None
) -> EvmLedger:
    """The contracts of `file`, or those that ship for the endpoint's chain, as `account` sees them.

    Raises:
        Unreachable, WrongChain.
        JournalError: the account's journal cannot be used.
        NotDeployed: no deployment is known for the chain, or its contracts are not there.
    """
    deployment = await deployment_of(rpc_urls, file)
    where = None
    if account is not None and journal is not None:
        where = journal(deployment.chain_id, deployment.coordinator, account.address)
    return await EvmLedger.connect(rpc_urls, deployment, account, where)


async def deployment_of(rpc_urls: Sequence[str], file: Path | None) -> Deployment:
    """That of `file`, which needs no chain to be asked; else the one that ships for the endpoint's chain.

    Raises: Unreachable, NotDeployed.
    """
    return Deployment.load(file) if file else await _shipped(rpc_urls)


async def _shipped(rpc_urls: Sequence[str]) -> Deployment:
    endpoints = Endpoints(rpc_urls, None)
    try:
        chain_id = await endpoints.chain_id()
    finally:
        await endpoints.close()
    found = for_chain(chain_id)
    if found is None:
        raise NotDeployed(
            f"no contracts are known on chain {chain_id}: name the run's deployment file with --deployment FILE, or "
            "deploy new contracts with `intellect-node deploy --wallet W --rpc URL --out FILE`"
        )
    return found
