"""A chain of a test's own with a run on it, and the account of a node that may submit."""

from dataclasses import dataclass, replace
from pathlib import Path

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Digest, RunId, RunParams, Version, Windows
from ledger.deploy import deploy
from ledger.deployment import Deployment
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.following import Patience
from ledger.journal import Journal, Stage
from ledger.messages import Domain, NodeAuthorization, sign

SPEC = b'{"name":"evm"}'
ROOT, OTHER_ROOT, BEACON = (Digest(bytes([value]) * 32) for value in (1, 2, 3))
TO = "0x00000000000000000000000000000000000000AA"
UNITS = 10
STAKE = 10_000
WINDOWS = Windows(available=10, audit=10, settle_by=100, confirm=10, contest=10, panel=10, grace=10)


@dataclass(frozen=True)
class EvmScene:
    anvil: Anvil
    deployment: Deployment
    run: RunId
    node: LocalAccount

    async def connect(
        self,
        account: LocalAccount,
        journal: Path | None = None,
        url: str | None = None,
        confirmations: int = 0,
        patience: Patience | None = None,
    ) -> EvmLedger:
        deployment = replace(self.deployment, confirmations=confirmations)
        return await EvmLedger.connect(
            [url or self.anvil.rpc_url], deployment, account, journal, patience or Patience(poll=0.02, resend=0.2)
        )


async def evm_scene(anvil: Anvil) -> EvmScene:
    """A funded run with version 0 published, owned by anvil's account 1, worked on by one node of account 2."""
    deployment = await deploy(anvil.rpc_url, anvil.accounts[0], 86_400)
    owner = await EvmLedger.connect([anvil.rpc_url], deployment, anvil.accounts[1], None, Patience(poll=0.02))
    provider = await EvmLedger.connect([anvil.rpc_url], deployment, anvil.accounts[2], None, Patience(poll=0.02))
    node = Account.create()
    await anvil.fund(node.address, 10**18)
    params = RunParams(
        trainer=owner.account,
        validators=(anvil.accounts[3].address,),
        quorum=1,
        price_per_unit=1,
        submission_bond=1,
        fault_bond=0,
        penalty=100,
        max_units=100,
        max_open=8,
        async_level=1,
        checkpoint_interval=0,
        trainer_delay=0,
        windows=WINDOWS,
    )
    run = await owner.create_run(params, SPEC)
    await owner.faucet(1000)
    await owner.fund_run(run, 1000)
    await owner.publish_checkpoint(run, Version(0), ROOT)
    await provider.faucet(STAKE)
    await provider.stake(STAKE)
    deadline = (await owner.head()).time + 1000
    message = NodeAuthorization(provider.account, node.address, 0, deadline)
    agreed = sign(node, Domain(provider.chain_id, provider.staking), message)
    await provider.authorize_node(node.address, deadline, agreed)
    await provider.allocate(run, node.address, STAKE)
    await owner.close()
    await provider.close()
    return EvmScene(anvil, deployment, run, node)


async def reader(url: str, deployment: Deployment) -> EvmLedger:
    """A ledger without an account."""
    return await EvmLedger.connect([url], deployment, None, None)


def entries(path: Path) -> list[tuple[str, Stage, bytes]]:
    journal = Journal(path)
    try:
        return [(entry.what, entry.stage, entry.attempts[-1].raw) for entry in journal.signed()]
    finally:
        journal.close()
