"""`intellect-node journal`: what a key signed, as a file for a backup or another machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.display import show
from cli.errors import reported
from cli.options import (
    BASE_SEPOLIA_RPC,
    REPLACE,
    DeploymentFile,
    Force,
    HomeFolder,
    Json,
    Rpc,
    Wallet,
    home_of,
    run_async,
)

if TYPE_CHECKING:
    from ledger.base import Address
    from node.config import Home, StateFolder

app = typer.Typer(help="Back up and restore what a key signed on one deployment.", no_args_is_help=True)

JournalFile = Annotated[Path, typer.Argument(help="The journal as JSON.")]
OfNode = Annotated[bool, typer.Option("--node", help="Of the node key that `join` made beside the wallet.")]


@app.command()
@reported
def export(
    file: JournalFile,
    wallet: Wallet,
    node: OfNode = False,
    force: Force = False,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Write everything that a wallet's key signed to FILE."""
    from ledger.journal import Journal
    from ledger.portable import export_journal
    from node.errors import ConfigError
    from node.files import require_new, write_atomically

    if not force:
        require_new(file, REPLACE)
    _, where, _ = _place(home_of(home), wallet, node, rpc, deployment)
    if not where.exists():
        raise ConfigError(f"there is no journal {where}: this key signed nothing on this deployment from this machine")
    journal = Journal(where)
    try:
        content, transactions = export_journal(journal), len(journal.signed())
    finally:
        journal.close()
    write_atomically(file, content.encode())
    show({"journal": str(where), "file": str(file), "transactions": transactions}, json)


@app.command(name="import")
@reported
def import_(
    file: JournalFile,
    wallet: Wallet,
    node: OfNode = False,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Add what another machine exported, so that nothing is signed against it here. Stop the node first."""
    from ledger.journal import Journal
    from ledger.portable import exported_entries
    from node.queries import idle

    entries = exported_entries(_read(file))
    key, where, states = _place(home_of(home), wallet, node, rpc, deployment)
    with idle(states):
        _require_own({entry.sender for entry in entries}, key, node)
        journal = Journal(where)
        try:
            new = journal.add(entries)
        finally:
            journal.close()
    show({"journal": str(where), "file": str(file), "new": new}, json)


def _place(
    home: "Home", wallet: str, node: bool, rpc: list[str] | None, deployment: Path | None
) -> "tuple[Address, Path, list[StateFolder]]":
    """The key, its journal, and the folders of the wallet's nodes. Raises: KeystoreError, NotDeployed, Unreachable."""
    from ledger import keys
    from ledger.connection import deployment_of

    path = keys.resolve(wallet, home.wallets)
    node_path = keys.node_key_path(path)
    address = keys.address(node_path if node else path)
    everybody = [keys.address(each) for each in (path, node_path) if each.exists()]
    contracts = run_async(deployment_of(rpc or [BASE_SEPOLIA_RPC], deployment))
    states = [state for who in everybody for state in home.states(contracts.chain_id, contracts.coordinator, who)]
    return address, home.journal(contracts.chain_id, contracts.coordinator, address), states


def _require_own(senders: "set[Address]", key: "Address", node: bool) -> None:
    """Raises: ConfigError: what another key signed would be no journal of this one."""
    from node.errors import ConfigError

    if others := senders - {key}:
        hint = "leave out --node if it is the wallet's own" if node else "give --node if it is the node key's"
        raise ConfigError(f"this is the journal of {', '.join(sorted(others))}, not of {key}: {hint}")


def _read(file: Path) -> str:
    from ledger.portable import MAX_BYTES
    from node.files import read_text

    return read_text(file, MAX_BYTES, "journal file")
