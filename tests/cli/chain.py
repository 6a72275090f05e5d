"""A chain with contracts and a run on it, and the wallets of everybody in the run, which unlock at once."""

from dataclasses import dataclass
from pathlib import Path

from ledger.base import Address, Digest, RunId
from ledger.deploy import deploy
from ledger.deployment import Deployment
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.keys import import_key
from node.launch import Plan, build_spec, create_run
from node.models.resolve import resolve
from node.runspec import RunSpec
from tests.cli.command import PASSWORD

UNBONDING_SECONDS = 600
POT = 10**21
ROLES = ("owner", "trainer", "validator", "worker", "relay")  # by the number of their account on anvil


@dataclass(slots=True)
class Chain:
    """An anvil with contracts and a run named `run`, of one step; its trainer has published nothing."""

    anvil: Anvil
    folder: Path
    run: RunId
    spec: RunSpec
    base: Path  # the run's model
    wallets: dict[str, Path]  # by role

    @property
    def contracts(self) -> Path:
        """The deployment's file."""
        return _contracts(self.folder)

    @property
    def root(self) -> Digest:
        """Of version 0."""
        return Digest(bytes.fromhex(self.spec.model.manifest_root))

    def at(self, url: str | None = None) -> tuple[str, ...]:
        """The options that name this chain and its contracts."""
        return ("--rpc", url or self.anvil.rpc_url, "--deployment", str(self.contracts))

    def address(self, role: str) -> Address:
        return Address(self.anvil.accounts[ROLES.index(role)].address)

    async def ledger(self, role: str) -> EvmLedger:
        """The chain as `role` sees it; whoever asks for it closes it."""
        account = self.anvil.accounts[ROLES.index(role)]
        return await EvmLedger.connect([self.anvil.rpc_url], Deployment.load(self.contracts), account, None)


async def prepared(anvil: Anvil, folder: Path) -> Chain:
    """Deploys the contracts, writes the wallets and creates the run; all files are in `folder`."""
    wallets = {role: folder / f"{role}.json" for role in ROLES}
    for path, account in zip(wallets.values(), anvil.accounts, strict=False):
        import_key(path, bytes(account.key).hex(), PASSWORD, iterations=1)
    (await deploy(anvil.rpc_url, anvil.accounts[0], UNBONDING_SECONDS)).save(_contracts(folder))
    base = resolve("tiny", lambda _: None)
    spec = build_spec("tiny", base, Plan("commands", max_steps=1, max_open=1))
    chain = Chain(anvil, folder, RunId(0), spec, base, wallets)
    owner = await chain.ledger("owner")
    people = [chain.address(role) for role in ("trainer", "validator", "relay")]
    chain.run = await create_run(owner, spec, people[0], people[1:2], 1, people[2:], POT)
    await owner.close()
    return chain


def _contracts(folder: Path) -> Path:
    return folder / "contracts.json"
