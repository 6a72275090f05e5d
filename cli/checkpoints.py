"""`intellect-node checkpoints`: the versions of a run's weights."""

from pathlib import Path
from typing import Annotated

import typer

from cli.display import show as show_result
from cli.errors import reported
from cli.options import (
    AllowPrivate,
    DeploymentFile,
    EngineName,
    Gpus,
    HomeFolder,
    Json,
    Rpc,
    RunId,
    TensorParallel,
    Threads,
    asked,
    engine_of,
    home_of,
)

app = typer.Typer(help="List and export versions of the weights.", no_args_is_help=True)


@app.command(name="list")
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


@app.command(name="export")
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


@app.command(name="examine")
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
