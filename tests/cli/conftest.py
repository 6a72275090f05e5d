"""A chain with a run on it, for commands that ask one, and wallets that unlock at once; a disk that can be full."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ledger.base import Address, Digest, RunId, Version
from ledger.deploy import deploy
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.keys import import_key
from node.launch import Plan, build_spec, create_run
from node.models.resolve import resolve
from node.runspec import RunSpec
from tests.cli.command import PASSWORD
from tests.node.small_disk import disk

__all__ = ["disk"]

UNBONDING_SECONDS = 600
ROLES = ("owner", "trainer", "validator", "worker", "relay")


@dataclass(frozen=True, slots=True)
class Chain:
    """An anvil that mines what is sent, with contracts and a run named `run`, whose version 0 is published."""

    anvil: Anvil
    contracts: Path  # the deployment's file
    run: RunId
    spec: RunSpec
    base: Path  # the run's model
    wallets: dict[str, Path]

    def at(self, url: str | None = None) -> tuple[str, ...]:
        """The options that name this chain and its contracts."""
        return ("--rpc", url or self.anvil.rpc_url, "--deployment", str(self.contracts))

    def address(self, role: str) -> Address:
        return Address(self.anvil.accounts[ROLES.index(role)].address)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    base = resolve("tiny", lambda _: None)
    async with Anvil(block_time=None) as anvil:
        wallets = {}
        for role, account in zip(ROLES, anvil.accounts, strict=False):
            wallets[role] = folder / f"{role}.json"
            import_key(wallets[role], bytes(account.key).hex(), PASSWORD, iterations=1)
        deployment = await deploy(anvil.rpc_url, anvil.accounts[0], UNBONDING_SECONDS)
        deployment.save(folder / "contracts.json")
        spec = build_spec("tiny", base, Plan("commands", max_steps=1, max_open=1))
        owner = await EvmLedger.connect([anvil.rpc_url], deployment, anvil.accounts[0], None)
        trainer = await EvmLedger.connect([anvil.rpc_url], deployment, anvil.accounts[1], None)
        keys = [Address(account.address) for account in anvil.accounts]
        run = await create_run(owner, spec, keys[1], [keys[2]], 1, [keys[4]], 10**20)
        await trainer.publish_checkpoint(run, Version(0), Digest(bytes.fromhex(spec.model.manifest_root)))
        await owner.close()
        await trainer.close()
        yield Chain(anvil, folder / "contracts.json", run, spec, base, wallets)
