"""`intellect-node stake`: what a provider has at stake, and how it gets it back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.display import show as show_result
from cli.errors import reported
from cli.options import (
    MAX_TOKENS,
    DeploymentFile,
    HomeFolder,
    Json,
    PasswordFile,
    Rpc,
    Wallet,
    asked,
    home_of,
    tokens,
    unlock,
)

if TYPE_CHECKING:
    from ledger.base import Address
    from node.config import Home
    from node.stakes import Backing

app = typer.Typer(help="See, add to, and take back what a wallet has at stake.", no_args_is_help=True)

Run = Annotated[int | None, typer.Option("--run", help="Of the wallet's node in this run; else free stake.", min=1)]


@app.command()
@reported
def show(
    wallet: Wallet,
    run: Run = None,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Show a wallet's stake: free, behind its node in each run, unbonding, and what can be withdrawn."""
    from ledger import keys
    from ledger.base import RunId
    from node.stakes import stake_summary

    place = home_of(home)
    path = keys.resolve(wallet, place.wallets)
    provider = keys.address(path)
    node = _node(path) if run is not None or keys.node_key_path(path).exists() else None
    number = None if run is None else RunId(run)
    found = asked(rpc, deployment, place, lambda ledger: stake_summary(ledger, provider, node, number))
    show_result(found if json else _explained(found), json)


@app.command()
@reported
def add(
    amount: Annotated[int, typer.Argument(help="Whole tokens.", min=1, max=MAX_TOKENS)],
    wallet: Wallet,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Stake tokens of the wallet. `join` does so by itself as far as its run needs it."""
    from ledger.base import TOKEN_UNIT
    from node.stakes import add_stake

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    show_result(asked(rpc, deployment, place, lambda ledger: add_stake(ledger, amount * TOKEN_UNIT), account), json)


@app.command()
@reported
def unbond(
    wallet: Wallet,
    run: Run = None,
    amount: Annotated[
        int | None,
        typer.Option(
            "--amount", help="Tokens, such as 12.5; default all that nothing locks.", parser=tokens, metavar="TOKENS"
        ),
    ] = None,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Begin to take stake back. It can still be slashed, and can be withdrawn once the unbonding time is over."""
    from node.stakes import Backing
    from node.stakes import unbond as unbond_stake

    place = home_of(home)
    backing = Backing() if run is None else _backing(place, wallet, run)
    account = unlock(wallet, place, password_file)
    show_result(asked(rpc, deployment, place, lambda ledger: unbond_stake(ledger, backing, amount), account), json)


@app.command()
@reported
def withdraw(
    wallet: Wallet,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Take back into the wallet what has unbonded."""
    from node.stakes import withdraw as withdraw_stake

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    show_result(asked(rpc, deployment, place, withdraw_stake, account), json)


def _explained(found: dict[str, Any]) -> dict[str, Any]:
    """`found` for people: why there is no table of allocations, where there is none."""
    if found.get("allocations", True):
        return found
    why = "none" if found["allocations"] == [] else "unknown: the node key that `join` makes is not beside this wallet"
    return found | {"allocations": why}


def _backing(home: "Home", wallet: str, run: int) -> "Backing":
    from ledger import keys
    from ledger.base import RunId
    from node.stakes import Backing

    return Backing(RunId(run), _node(keys.resolve(wallet, home.wallets)))


def _node(wallet: Path) -> "Address":
    """Address of the node key beside the wallet. Raises: KeystoreError."""
    from ledger import keys

    return keys.address(keys.node_key_path(wallet))
