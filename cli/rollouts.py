"""`intellect-node rollouts`: what is in a rollout file."""

from pathlib import Path
from typing import Annotated

import typer

from cli.display import show as show_result
from cli.errors import reported
from cli.options import REPLACE, DeploymentFile, Force, HomeFolder, Json, Rpc, RunId, asked, home_of

app = typer.Typer(help="Look into rollout files.", no_args_is_help=True)

RolloutFile = Annotated[Path, typer.Argument(help="A rollout file, as a worker or validator keeps it.")]


@app.command(name="show")
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


@app.command()
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
