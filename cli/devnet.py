"""`intellect-node devnet`: the whole network on this machine."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.errors import FAILED, reported
from cli.options import Json, run_async

if TYPE_CHECKING:
    from ledger.base import Ledger
    from node.devnet.report import Report

T = TypeVar("T")


@reported
def devnet(
    model: Annotated[str, typer.Option("--model", help="smollm2 (a real model) or tiny (seconds).")] = "smollm2",
    engine: Annotated[str, typer.Option("--engine", help="What generates: vllm, transformers, auto.")] = "transformers",
    workers: Annotated[int, typer.Option("--workers", help="Honest workers.", min=1, max=32)] = 2,
    validators: Annotated[int, typer.Option("--validators", min=1, max=32)] = 2,
    cheat: Annotated[
        str, typer.Option("--cheat", help="Fraud of the cheater: other-model, edited-tokens, forged-reward, or none.")
    ] = "other-model",
    steps: Annotated[int, typer.Option("--steps", help="Optimiser steps.", min=1, max=1_000_000)] = 10,
    samples: Annotated[
        int, typer.Option("--samples", help="Of each held-out prompt, before and after.", min=0, max=1024)
    ] = 4,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Most time that the run may take.", min=1, max=1e7)
    ] = 1500.0,
    folder: Annotated[Path | None, typer.Option("--folder", help="Keep all files and logs here.")] = None,
    json: Json = False,
) -> None:
    """Run the whole network here, on a local chain: real roles, a cheater, and a table of what happened."""
    from node.devnet.network import Show, play
    from node.engines.choice import EngineChoice
    from node.models.resolve import resolve

    EngineChoice(engine).require_possible()
    fraud = _fraud(cheat)
    if folder:
        _require_unused(folder)
    resolve(model, lambda line: typer.echo(line, err=json))
    with _place(folder) as place:
        kept = "" if folder else " (deleted at the end; --folder keeps them)"
        typer.echo(f"files and logs: {place}{kept}", err=json)
        show = Show(place.resolve(), model, engine, workers, validators, fraud, steps, samples, seconds)
        found = run_async(_terminable(play(show, _connect, lambda line: typer.echo(line, err=json))))
    _print(found, json)
    if found.failures:
        logs = f"the logs are in {place / 'logs'}" if folder else "--folder DIR keeps the logs"
        typer.echo(f"error: not as it should be; {logs}", err=True)
        raise typer.Exit(FAILED)


async def _terminable(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`; SIGTERM cancels it as Ctrl-C does, and does so once: putting things away takes time."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, lambda: task.cancelling() or task.cancel())
    return await work


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Where all of the network goes; what is not `folder` is deleted, however the network ends."""
    if folder is not None:
        yield folder
        return
    place = Path(tempfile.mkdtemp(prefix="intellect-node-devnet-"))
    try:
        yield place
    finally:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which asks for no more than what happens here
        shutil.rmtree(place, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _fraud(cheat: str) -> str | None:
    """Raises: ConfigError."""
    from node.errors import ConfigError
    from node.roles.frauds import FRAUDS

    if cheat not in (known := (*FRAUDS, "none")):
        raise ConfigError(f"there is no fraud {cheat!r}: choose one of {', '.join(known)}")
    return None if cheat == "none" else cheat


def _require_unused(folder: Path) -> None:
    """Makes the folder. Raises: ConfigError: it cannot be one, or has an earlier network in it."""
    from node.errors import ConfigError
    from node.files import require_writable

    require_writable(folder)
    if (folder / "homes").exists():
        raise ConfigError(f"an earlier network used folder {folder}: name another --folder, or delete it")


async def _connect(rpc_url: str, deployment: Path) -> "Ledger":
    from ledger.connection import open_ledger

    return await open_ledger([rpc_url], deployment, None, None)


def _print(found: "Report", as_json: bool) -> None:
    import dataclasses
    import json

    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    from cli.tables import closing

    closing(found)


def register(app: typer.Typer) -> None:
    app.command()(devnet)
