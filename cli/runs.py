"""`intellect-node deploy` and `intellect-node run`: contracts, and runs on them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.display import show as show_result
from cli.errors import reported
from cli.options import (
    MAX_TOKENS,
    RPC_VARIABLE,
    DeploymentFile,
    HomeFolder,
    Json,
    PasswordFile,
    Rpc,
    RunId,
    Wallet,
    address,
    asked,
    home_of,
    run_async,
    unlock,
)

if TYPE_CHECKING:
    from ledger.base import Ledger

MAX_SECONDS = 2**31 - 1  # what a run's windows can be: uint32, and the specification's integers
MAX_CONFIRMATIONS = 2**16  # `ledger.deployment`'s
MAX_STEPS = 2**31 - 1  # the specification's integers

app = typer.Typer(help="Create, look at, and end runs.", no_args_is_help=True)


@reported
def deploy(
    wallet: Wallet,
    rpc: Annotated[str, typer.Option("--rpc", envvar=RPC_VARIABLE, help="RPC endpoint of the chain.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the deployment file.")],
    unbonding: Annotated[
        int,
        typer.Option(
            "--unbonding",
            help="Seconds that stake takes to be free; longer than any run's windows.",
            min=1,
            max=MAX_SECONDS,
        ),
    ] = 14 * 86_400,
    faucet_cap: Annotated[
        int,
        typer.Option(
            "--faucet-cap", help="Whole test tokens that one call of the faucet gives at most.", min=0, max=MAX_TOKENS
        ),
    ] = 1_000_000,
    faucet_cooldown: Annotated[
        int, typer.Option("--faucet-cooldown", help="Seconds between two calls.", min=0, max=MAX_SECONDS)
    ] = 0,
    confirmations: Annotated[
        int, typer.Option("--confirmations", help="Blocks to wait before one counts.", min=0, max=MAX_CONFIRMATIONS)
    ] = 0,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Deploy the contracts to a chain that has none, and write the file that every other command takes."""
    from dataclasses import asdict

    from ledger.base import TOKEN_UNIT, Address
    from ledger.deploy import deploy as deploy_contracts
    from node.files import require_new, require_writable
    from node.roles.gas import GAS_ASKED_FOR, paying_gas

    require_new(out, "it may name contracts that are in use, so name another file with --out")
    require_writable(out.absolute().parent)
    account = unlock(wallet, home_of(home), password_file)

    def begun() -> None:
        what = "if this is cut short, run it again: nothing refers to half of it"
        typer.echo(f"deploying from {account.address}; {what}", err=True)

    work = deploy_contracts(
        rpc, account, unbonding, faucet_cap=faucet_cap * TOKEN_UNIT, faucet_cooldown_seconds=faucet_cooldown,
        confirmations=confirmations, begun=begun,
    )  # fmt: skip
    with paying_gas(Address(account.address), GAS_ASKED_FOR):  # after which it begins anew
        made = run_async(work)
    show_result({**asdict(made), "file": str(out)}, json)  # first: whatever befalls the file, the addresses are known
    made.save(out)


@app.command()
@reported
def create(
    wallet: Wallet,
    trainer: Annotated[str, typer.Option("--trainer", help="Address of the trainer's key.")],
    validator: Annotated[list[str], typer.Option("--validator", help="Address of a validator; repeat it.")],
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    model: Annotated[str, typer.Option("--model", help="Preset and base model: smollm2 or tiny.")] = "smollm2",
    name: Annotated[str | None, typer.Option("--name", help="Of the run; default its task's.")] = None,
    relay: Annotated[list[str] | None, typer.Option("--relay", help="Address of an approved relay; repeat it.")] = None,
    quorum: Annotated[
        int | None, typer.Option("--quorum", help="Signatures that decide; default 2/3 + 1.", min=1)
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", help="Optimiser steps until the run ends.", min=1, max=MAX_STEPS)
    ] = 10,
    pace: Annotated[str, typer.Option("--pace", help="Windows: local (seconds) or testnet (days).")] = "testnet",
    audit_leaves: Annotated[
        int | None, typer.Option("--audit-leaves", help="Rollouts audited per submission; default all.", min=1)
    ] = None,
    max_provider_share: Annotated[
        float, typer.Option("--max-provider-share", help="Most of a training batch that one provider gives.")
    ] = 1.0,
    pot: Annotated[
        int | None, typer.Option("--pot", help="Whole tokens that pay for the work.", min=0, max=MAX_TOKENS)
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Environment; default the preset's.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the task, name=value; repeat it.")
    ] = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Create and fund a run from a preset and its base model."""
    from ledger.base import TOKEN_UNIT
    from node.launch import Plan, build_spec, create_run, default_pot, preset
    from node.models.resolve import resolve
    from node.tasks.environment import read_settings

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    trainer_key, validators, relays = address(trainer), list(map(address, validator)), list(map(address, relay or ()))
    base = resolve(model, lambda line: typer.echo(line, err=True))
    plan = Plan(
        name or task or preset(model).task, pace, steps, audit_leaves, max_provider_share=max_provider_share,
        task=task, settings=read_settings(setting or ()),
    )  # fmt: skip
    spec = build_spec(model, base, plan)
    funds = default_pot(spec) if pot is None else pot * TOKEN_UNIT

    async def work(ledger: "Ledger") -> int:
        return await create_run(ledger, spec, trainer_key, validators, quorum, relays, funds)

    run = asked(rpc, deployment, place, work, account)
    show_result({"run": run, "spec": spec.digest.hex(), "pot": str(funds), "penalty": spec.economics.penalty}, json)


@app.command()
@reported
def approve(
    relay: Annotated[str, typer.Argument(help="Address of the relay.")],
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the approval back.")] = False,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Approve a relay of a run. Owner only."""
    from ledger.base import RunId as Number
    from node.stakes import approve_relay

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    named = address(relay)

    async def work(ledger: "Ledger") -> "dict[str, Any]":
        return await approve_relay(ledger, Number(run), named, not revoke)

    show_result(asked(rpc, deployment, place, work, account), json)


@app.command()
@reported
def end(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """End a run for ever: no more versions, and after `grace` no more work. Owner or trainer only."""
    from ledger.base import RunId as Number
    from node.stakes import end_run

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    show_result(asked(rpc, deployment, place, lambda ledger: end_run(ledger, Number(run)), account), json)


@app.command(name="withdraw")
@reported
def withdraw_pot(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Take what is left of an ended run's pot back. Owner only, once no submission is open."""
    from ledger.base import RunId as Number
    from node.stakes import withdraw_pot as take

    place = home_of(home)
    account = unlock(wallet, place, password_file)
    show_result(asked(rpc, deployment, place, lambda ledger: take(ledger, Number(run)), account), json)


@app.command(name="list")
@reported
def list_(
    newest: Annotated[int, typer.Option("--newest", help="Runs shown, the newest.", min=1)] = 20,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """List the deployment's runs. Reads each run's events, which takes long on an old public chain."""
    from node.queries import list_runs

    rows = asked(rpc, deployment, home_of(home), lambda ledger: list_runs(ledger, newest))
    show_result(rows, json, "no runs on this deployment yet")


@app.command()
@reported
def show(
    run: RunId, rpc: Rpc = None, deployment: DeploymentFile = None, home: HomeFolder = None, json: Json = False
) -> None:
    """Show a run: its terms, and how far it is."""
    from node.queries import run_summary

    show_result(asked(rpc, deployment, home_of(home), lambda ledger: run_summary(ledger, run)), json)
