"""Commands of the top level that ask, status above all; and the small ones beside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.display import show as show_result
from cli.errors import FAILED, OK, reported
from cli.options import (
    MAX_TOKENS,
    AllowPrivate,
    DeploymentFile,
    EngineName,
    Gpus,
    HomeFolder,
    Json,
    PasswordFile,
    Rpc,
    RunId,
    TensorParallel,
    Threads,
    Wallet,
    asked,
    engine_of,
    home_of,
    unlock,
)

if TYPE_CHECKING:
    from ledger.base import Ledger


@reported
def status(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    newest: Annotated[int, typer.Option("--newest", help="Submissions shown, the newest.", min=1)] = 50,
    ask_validators: Annotated[
        bool, typer.Option("--ask/--no-ask", help="Ask validators who holds a file and what was measured.")
    ] = True,
    allow_private: AllowPrivate = False,
    json: Json = False,
) -> None:
    """Show what a wallet has in a run and what became of its work: state, reason, and what is not on chain yet."""
    from cli.display import when
    from cli.status import show_standing
    from ledger import keys
    from node.outcomes import block_time
    from node.standing import Asked, standing_of

    place = home_of(home)
    path = keys.resolve(wallet, place.wallets)
    node_path = keys.node_key_path(path)
    provider = keys.address(path)
    node = keys.address(node_path) if node_path.exists() else None
    question = Asked(provider, node, place, newest=newest, when=block_time if json else when)
    private = allow_private if ask_validators else None
    found = asked(rpc, deployment, place, lambda ledger: standing_of(ledger, run, question, private))
    if json:
        show_result(found, True)
    else:
        show_standing(found)


@reported
def faucet(
    wallet: Wallet,
    amount: Annotated[int, typer.Option("--amount", help="Whole test tokens.", min=1, max=MAX_TOKENS)] = 1000,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Take test tokens from the stake token's faucet (test networks only)."""
    from ledger.base import TOKEN_UNIT

    place = home_of(home)
    account = unlock(wallet, place, password_file)

    async def work(ledger: "Ledger") -> int:
        await ledger.faucet(amount * TOKEN_UNIT)
        return await ledger.token_balance(ledger.account)

    balance = asked(rpc, deployment, place, work, account)
    show_result({"address": account.address, "tokens": str(balance)}, json)


@reported
def verify(
    file: Annotated[Path, typer.Argument(help="Evidence file that a validator wrote.")],
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    allow_private: AllowPrivate = False,
    engine: EngineName = "auto",
    threads: Threads = None,
    gpus: Gpus = None,
    tensor_parallel: TensorParallel = 1,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Replay a validator's evidence: exit code 0 if the fault is there, 1 if it is not."""
    from node.replay import verify_evidence

    place, choice = home_of(home), engine_of(engine, threads, gpus, tensor_parallel)

    def say(line: str) -> None:
        typer.echo(line, err=True)

    result = asked(
        rpc, deployment, place, lambda ledger: verify_evidence(ledger, file, place, allow_private, choice, say)
    )
    show_result(result, json)
    raise typer.Exit(OK if result["confirmed"] else FAILED)


@reported
def paths(home: HomeFolder = None, json: Json = False) -> None:
    """Show where this program keeps its files."""
    from node.models.cache import default_cache

    place = home_of(home)
    show_result(
        {
            "home": str(place.folder),
            "wallets": str(place.wallets),
            "runs": str(place.folder / "runs"),
            "journals": str(place.folder / "journals"),
            "models": str(default_cache()),
        },
        json,
    )


@reported
def purge(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    models: Annotated[bool, typer.Option("--models", help="The cached models too.")] = False,
    home: HomeFolder = None,
) -> None:
    """Delete the files of all runs: weights, training states, rollouts, evidence. Wallets and journals stay."""
    from node.models.cache import default_cache
    from node.queries import delete_unused, run_folders

    place = home_of(home)
    found = [*run_folders(place), *(folder for folder in (place.folder / "exports",) if folder.exists())]
    found += [default_cache()] if models and default_cache().exists() else []
    if not found:
        typer.echo("nothing to delete")
        return
    if not yes:
        typer.echo("\n".join(map(str, found)))
        typer.confirm("Delete these folders? Unfinished runs cannot go on without them.", abort=True)
    delete_unused(found, place)
    typer.echo("\n".join(f"deleted {folder}" for folder in found))


def register(app: typer.Typer) -> None:
    for command in (status, faucet, verify, paths, purge):
        app.command()(command)
