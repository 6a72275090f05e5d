"""`intellect-node rewards`: what was earned."""

import typer

from cli.display import show as show_result
from cli.errors import reported
from cli.options import DeploymentFile, HomeFolder, Json, PasswordFile, Rpc, Wallet, asked, home_of, unlock

app = typer.Typer(help="See and claim what was earned.", no_args_is_help=True)


@app.command()
@reported
def show(
    wallet: Wallet,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Show settled rewards that were not claimed yet."""
    from ledger import keys

    place = home_of(home)
    provider = keys.address(keys.resolve(wallet, place.wallets))
    amount = asked(rpc, deployment, place, lambda ledger: ledger.rewards(provider))
    show_result({"provider": provider, "rewards": str(amount)}, json)


@app.command()
@reported
def claim(
    wallet: Wallet,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Claim settled rewards to the wallet."""
    from node.roles.claiming import claim_rewards

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    amount = asked(rpc, deployment, place, claim_rewards, account)
    if not amount:
        why = "no pay is settled for this wallet yet, or all was claimed; `intellect-node status` shows its work"
        typer.echo(f"nothing to claim: {why}", err=True)
    show_result({"provider": account.address, "claimed": str(amount)}, json)
