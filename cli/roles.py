"""`intellect-node join`, `validate`, `train`, `relay`: taking part in a run."""

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import FAILED, reported
from cli.options import (
    AllowPrivate,
    DeploymentFile,
    EngineName,
    Gpus,
    HomeFolder,
    NoInbound,
    NoP2p,
    P2pPort,
    PasswordFile,
    Peer,
    Rpc,
    RunId,
    TensorParallel,
    Threads,
    Wallet,
    connect,
    engine_of,
    home_of,
    libp2p_of,
    password,
)
from cli.sharing import AlwaysServes, NoServe, Quota, UploadLimit, require_serving, sharing_of

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from ledger.base import Ledger
    from node.config import Home, Libp2p, Settings, Sharing

ROLES = {"join": "worker", "validate": "validator", "train": "trainer", "relay": "relay"}  # by command

Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
Advertise = Annotated[str | None, typer.Option("--advertise", help="URL under which other nodes reach this one.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")]
Model = Annotated[str, typer.Option("--model", help="The run's base model: smollm2, tiny, a folder, or a hub name.")]


@reported
def join(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    host: Host = "0.0.0.0",
    port: Port = 0,
    advertise: Advertise = None,
    allow_private: AllowPrivate = False,
    peer: Peer = None,
    p2p_port: P2pPort = 0,
    no_p2p: NoP2p = False,
    no_inbound: NoInbound = False,
    upload_limit: UploadLimit = None,
    no_serve: NoServe = False,
    quota: Quota = None,
    engine: EngineName = "auto",
    threads: Threads = None,
    gpus: Gpus = None,
    tensor_parallel: TensorParallel = 1,
    cheat: Annotated[str | None, typer.Option("--cheat", hidden=True)] = None,
    log_json: LogJson = False,
) -> None:
    """Contribute: register, fetch weights, make rollouts with proofs, submit, get paid."""
    from ledger import keys
    from node.runtime import run_worker

    choice = engine_of(engine, threads, gpus, tensor_parallel)
    place = home_of(home)
    secret = password(password_file)
    path = keys.resolve(wallet, place.wallets)
    provider = keys.unlock(path, secret)
    node = _node_key(path, secret)
    settings = _settings(
        place, run, host, port, advertise, allow_private, threads, sharing_of(upload_limit, no_serve, quota),
        libp2p_of(peer, p2p_port, no_p2p), inbound=not no_inbound,
    )  # fmt: skip
    work = run_worker(settings, _connector(rpc, deployment, place), provider, node, choice, cheat)
    _run("worker", work, log_json)


@reported
def validate(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    host: Host = "0.0.0.0",
    port: Port = 0,
    advertise: Advertise = None,
    allow_private: AllowPrivate = False,
    peer: Peer = None,
    p2p_port: P2pPort = 0,
    no_p2p: NoP2p = False,
    upload_limit: UploadLimit = None,
    no_serve: NoServe = False,
    quota: Quota = None,
    engine: EngineName = "auto",
    threads: Threads = None,
    gpus: Gpus = None,
    tensor_parallel: TensorParallel = 1,
    log_json: LogJson = False,
) -> None:
    """Validate: hold every file, audit what is drawn, have cheaters slashed."""
    from node.runtime import run_validator

    choice = engine_of(engine, threads, gpus, tensor_parallel)
    place, account = _account(home, wallet, password_file)
    settings = _settings(
        place, run, host, port, advertise, allow_private, threads, sharing_of(upload_limit, no_serve, quota),
        libp2p_of(peer, p2p_port, no_p2p),
    )  # fmt: skip
    work = run_validator(settings, _connector(rpc, deployment, place), account, choice)
    _run("validator", work, log_json)


@reported
def train(
    wallet: Wallet,
    run: RunId,
    model: Model,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    host: Host = "0.0.0.0",
    port: Port = 0,
    advertise: Advertise = None,
    allow_private: AllowPrivate = False,
    peer: Peer = None,
    p2p_port: P2pPort = 0,
    no_p2p: NoP2p = False,
    upload_limit: UploadLimit = None,
    no_serve: AlwaysServes = False,
    quota: Quota = None,
    threads: Threads = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", help="Rollouts of one optimiser step; default the preset's.", min=1, max=2**20),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Of AdamW; default the preset's.", min=0, max=1)
    ] = None,
    log_json: LogJson = False,
) -> None:
    """Train: turn accepted rollouts into the next version, publish it, serve the weights."""
    from node.launch import training
    from node.log import event
    from node.models.resolve import resolve
    from node.runtime import run_trainer

    require_serving(no_serve, "a trainer is whom everybody has the weights from")
    place, account = _account(home, wallet, password_file)
    base = resolve(model, event)
    settings = _settings(
        place, run, host, port, advertise, allow_private, threads, sharing_of(upload_limit, no_serve, quota),
        libp2p_of(peer, p2p_port, no_p2p),
    )  # fmt: skip
    plan = training(model, base, batch, learning_rate)
    _run("trainer", run_trainer(settings, _connector(rpc, deployment, place), account, plan), log_json)


@reported
def relay(
    wallet: Wallet,
    run: RunId,
    rpc: Rpc = None,
    deployment: DeploymentFile = None,
    home: HomeFolder = None,
    password_file: PasswordFile = None,
    host: Host = "0.0.0.0",
    port: Port = 0,
    advertise: Advertise = None,
    allow_private: AllowPrivate = False,
    peer: Peer = None,
    p2p_port: P2pPort = 0,
    no_p2p: NoP2p = False,
    upload_limit: UploadLimit = None,
    no_serve: AlwaysServes = False,
    quota: Quota = None,
    log_json: LogJson = False,
) -> None:
    """Relay: hold the newest versions of the weights and serve them, until stopped."""
    from node.runtime import run_relay

    require_serving(no_serve, "a relay is there to serve weights")
    place, account = _account(home, wallet, password_file)
    settings = _settings(
        place, run, host, port, advertise, allow_private, None, sharing_of(upload_limit, no_serve, quota),
        libp2p_of(peer, p2p_port, no_p2p),
    )  # fmt: skip
    _run("relay", run_relay(settings, _connector(rpc, deployment, place), account), log_json)


def register(app: typer.Typer) -> None:
    for command in (join, validate, train, relay):
        app.command()(command)


def _account(home: Path | None, wallet: str, password_file: Path | None) -> "tuple[Home, LocalAccount]":
    from cli.options import unlock

    place = home_of(home)
    return place, unlock(wallet, place, password_file)


def _node_key(wallet: Path, secret: str) -> "LocalAccount":
    """The node key beside the provider's wallet, made when there is none."""
    from ledger import keys

    path = keys.node_key_path(wallet)
    if not path.exists():
        keys.create(path, secret)
    return keys.unlock(path, secret)


def _settings(
    home: "Home",
    run: int,
    host: str,
    port: int,
    advertise: str | None,
    allow_private: bool,
    threads: int | None,
    sharing: "Sharing",
    libp2p: "Libp2p",
    inbound: bool = True,
) -> "Settings":
    from node.config import Settings

    return Settings(
        home, run, host, port, advertise, allow_private, threads, sharing=sharing, libp2p=libp2p, inbound=inbound
    )


def _connector(
    rpc: list[str] | None, deployment: Path | None, home: "Home"
) -> "Callable[[LocalAccount], Awaitable[Ledger]]":
    return lambda account: connect(rpc, deployment, home, account)


def _run(role: str, work: Coroutine[None, None, None], log_json: bool) -> None:
    from node.log import configure
    from node.runtime import run_until_stopped

    configure(role, json_lines=log_json)
    if not run_until_stopped(work):
        raise typer.Exit(FAILED)
