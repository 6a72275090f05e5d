"""Commands that ask: status, rewards, rollouts, checkpoints, paths; and the small ones beside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.display import show as show_result
from cli.errors import FAILED, OK, reported
from cli.options import (
    MAX_TOKENS,
    REPLACE,
    AllowPrivate,
    DeploymentFile,
    EngineName,
    Force,
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

rewards = typer.Typer(help="See and claim what was earned.", no_args_is_help=True)
rollouts = typer.Typer(help="Look into rollout files.", no_args_is_help=True)
checkpoints = typer.Typer(help="List and export versions of the weights.", no_args_is_help=True)

RolloutFile = Annotated[Path, typer.Argument(help="A rollout file, as a worker or validator keeps it.")]


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


@rewards.command()
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


@rewards.command()
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


@rollouts.command(name="show")
@reported
def show_rollouts(
    file: RolloutFile,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Show the rollouts in a file: lengths, reward, how each ended."""
    from node.queries import read_record, read_rollouts
    from node.rollouts.rollout import FINISH_EOS

    spec, _ = asked(rpc, deployment, home_of(home), lambda ledger: read_record(ledger, run))
    rows = [
        {
            "group": rollout.group,
            "index": rollout.index,
            "prompt_tokens": len(rollout.prompt_ids),
            "output_tokens": len(rollout.output_ids),
            "reward": rollout.reward,
            "finish": "eos" if rollout.finish == FINISH_EOS else "length",
        }
        for rollout in read_rollouts(spec, file)
    ]
    show_result(rows, json)


@rollouts.command()
@reported
def export(
    file: RolloutFile,
    out: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    run: RunId,
    force: Force = False,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Export a rollout file as Parquet."""
    from node.files import require_new
    from node.queries import export_rollouts, read_record

    if not force:
        require_new(out, REPLACE)
    spec, record = asked(rpc, deployment, home_of(home), lambda ledger: read_record(ledger, run))
    rows = export_rollouts(spec, record, file, out)
    show_result({"file": str(out), "rows": rows}, json)


@checkpoints.command(name="list")
@reported
def list_checkpoints(
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """List the published versions."""
    from node.queries import read_record

    _, record = asked(rpc, deployment, home_of(home), lambda ledger: read_record(ledger, run))
    rows = [
        {"version": c.version, "root": c.manifest_root.hex(), "block": c.block.number, "time": c.block.time}
        for c in record.checkpoints
    ]
    show_result(rows, json, "no versions yet: the trainer has published none")


@checkpoints.command(name="export")
@reported
def export_checkpoint(
    version: Annotated[int, typer.Argument(help="Version to fetch.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write; transformers loads it.")],
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    allow_private: AllowPrivate = False,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Export a version as a folder that transformers loads."""
    from node.exports import export_checkpoint as fetch

    place = home_of(home)

    def say(line: str) -> None:
        typer.echo(line, err=True)

    asked(rpc, deployment, place, lambda ledger: fetch(ledger, run, version, folder, place, allow_private, say))
    show_result({"version": version, "folder": str(folder)}, json)


@checkpoints.command(name="examine")
@reported
def examine_checkpoint(
    version: Annotated[int, typer.Argument(help="Version to examine.")],
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    samples: Annotated[int, typer.Option("--samples", help="Answers to each held-out prompt.", min=1, max=1024)] = 4,
    engine: EngineName = "auto",
    threads: Threads = None,
    gpus: Gpus = None,
    tensor_parallel: TensorParallel = 1,
    allow_private: AllowPrivate = False,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Measure a version's mean reward on the run's held-out prompts."""
    from node.examination import examine_checkpoint as examine

    place, choice = home_of(home), engine_of(engine, threads, gpus, tensor_parallel)

    def say(line: str) -> None:
        typer.echo(line, err=True)

    found = asked(
        rpc,
        deployment,
        place,
        lambda ledger: examine(ledger, run, version, samples, choice, place, allow_private, say),
    )
    show_result(found, json)


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
    app.add_typer(rewards, name="rewards")
    app.add_typer(rollouts, name="rollouts")
    app.add_typer(checkpoints, name="checkpoints")
