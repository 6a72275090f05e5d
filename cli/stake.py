"""`intellect-node stake`: what a provider has at stake, and how it gets it back."""

from typing import TYPE_CHECKING, Annotated

import typer

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
    unlock,
)
from cli.options import show as show_result

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
    """Show a wallet's stake, what of it unbonds, and what can be withdrawn, in base units."""
    from ledger import keys
    from node.stakes import stake_summary

    place = home_of(home)
    provider = keys.address(keys.resolve(wallet, place.wallets))
    backing = None if run is None else _backing(place, wallet, run)
    show_result(asked(rpc, deployment, place, lambda ledger: stake_summary(ledger, provider, backing)), json)


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
        int | None, typer.Option("--amount", help="Base units; default all that nothing locks.", min=1, max=2**128 - 1)
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


def _backing(home: "Home", wallet: str, run: int) -> "Backing":
    from ledger.base import RunId
    from node.stakes import Backing

    return Backing(RunId(run), _node(home, wallet))


def _node(home: "Home", wallet: str) -> "Address":
    """Address of the node key beside the wallet. Raises: KeystoreError."""
    from ledger import keys

    return keys.address(keys.node_key_path(keys.resolve(wallet, home.wallets)))
