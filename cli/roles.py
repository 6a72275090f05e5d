"""`intellect-node join`, `validate`, `train`, `relay`: taking part in a run."""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import FAILED, reported
from cli.groups import grouped
from cli.options import NoInbound, Threads
from cli.role_options import AlwaysSharingOptions, EngineOptions, MemberOptions, NodeOptions, SharingOptions

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

ROLES = {"join": "worker", "validate": "validator", "train": "trainer", "relay": "relay"}  # by command

LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")]
BaseModel = Annotated[
    str, typer.Option("--model", help="The run's base model: smollm2, tiny, a folder, or a hub name.")
]
Batch = Annotated[
    int | None, typer.Option("--batch", help="Rollouts of one optimiser step; default the preset's.", min=1, max=2**20)
]
LearningRate = Annotated[
    float | None, typer.Option("--learning-rate", help="Of AdamW; default the preset's.", min=0, max=1)
]


@reported
@grouped
def join(
    *,
    member: MemberOptions,
    place: NodeOptions,
    no_inbound: NoInbound = False,
    sharing: SharingOptions,
    engine: EngineOptions,
    cheat: Annotated[str | None, typer.Option("--cheat", hidden=True)] = None,
    log_json: LogJson = False,
) -> None:
    """Contribute: register, fetch weights, make rollouts with proofs, submit, get paid."""
    from ledger import keys
    from node.runtime import run_worker

    choice = engine.choice()
    path = keys.resolve(member.wallet, place.folder.wallets)
    secret = place.secret(path)
    provider = keys.unlock(path, secret)
    node = _node_key(path, secret)
    settings = place.settings(member, sharing.value(), engine.threads, inbound=not no_inbound)
    _run("worker", run_worker(settings, place.connector(), provider, node, choice, cheat), log_json)


@reported
@grouped
def validate(
    member: MemberOptions, place: NodeOptions, sharing: SharingOptions, engine: EngineOptions, log_json: LogJson = False
) -> None:
    """Validate: hold every file, audit what is drawn, have cheaters slashed."""
    from node.runtime import run_validator

    choice, account = engine.choice(), place.account(member)
    settings = place.settings(member, sharing.value(), engine.threads)
    _run("validator", run_validator(settings, place.connector(), account, choice), log_json)


@reported
@grouped
def train(
    member: MemberOptions,
    model: BaseModel,
    place: NodeOptions,
    sharing: AlwaysSharingOptions,
    threads: Threads = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    log_json: LogJson = False,
) -> None:
    """Train: turn accepted rollouts into the next version, publish it, serve the weights."""
    from node.launch import training
    from node.log import event
    from node.models.resolve import resolve
    from node.runtime import run_trainer

    sharing.require("a trainer is whom everybody has the weights from")
    account = place.account(member)
    base = resolve(model, event)
    settings = place.settings(member, sharing.value(), threads)
    plan = training(model, base, batch, learning_rate)
    _run("trainer", run_trainer(settings, place.connector(), account, plan), log_json)


@reported
@grouped
def relay(member: MemberOptions, place: NodeOptions, sharing: AlwaysSharingOptions, log_json: LogJson = False) -> None:
    """Relay: hold the newest versions of the weights and serve them, until stopped."""
    from node.runtime import run_relay

    sharing.require("a relay is there to serve weights")
    account = place.account(member)
    settings = place.settings(member, sharing.value(), threads=None)
    _run("relay", run_relay(settings, place.connector(), account), log_json)


def register(app: typer.Typer) -> None:
    for command in (join, validate, train, relay):
        app.command()(command)


def _node_key(wallet: Path, secret: str) -> "LocalAccount":
    """The node key beside the provider's wallet, made when there is none."""
    from ledger import keys

    path = keys.node_key_path(wallet)
    if not path.exists():
        keys.create(path, secret)
    return keys.unlock(path, secret)


def _run(role: str, work: Coroutine[None, None, None], log_json: bool) -> None:
    from node.log import configure
    from node.runtime import run_until_stopped

    configure(role, json_lines=log_json)
    if not run_until_stopped(work):
        raise typer.Exit(FAILED)
