"""`intellect-node`: one program for contributors, validators, trainers, relays, and local test networks."""

import sys
from typing import Annotated

import typer

from cli import checkpoints, devnet, journal, queries, rewards, roles, rollouts, runs, stake, wallet
from cli.errors import BUG, FAILED, USAGE

app = typer.Typer(
    name="intellect-node",
    help="Reinforcement learning of a language model on machines that nobody has to trust.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
roles.register(app)
devnet.register(app)
app.command()(runs.deploy)
app.add_typer(wallet.app, name="wallet")
app.add_typer(stake.app, name="stake")
app.add_typer(journal.app, name="journal")
app.add_typer(runs.app, name="run")
queries.register(app)
app.add_typer(rewards.app, name="rewards")
app.add_typer(rollouts.app, name="rollouts")
app.add_typer(checkpoints.app, name="checkpoints")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"intellect-node {version('intellect-node')}, protocol 1")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version, and that of the protocol.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Reinforcement learning of a language model on machines that nobody has to trust."""


def main() -> None:
    """Runs the command line. A bug is said to be one, with exit code 70.

    Whether lines are JSON has to be known before anything of the command line can be wrong.
    """
    from node.log import complain, configure

    json_lines = "--log-json" in sys.argv[1:]
    role = next((roles.ROLES[word] for word in sys.argv[1:] if word in roles.ROLES), None)
    configure(role if json_lines else None, json_lines=json_lines)
    try:
        sys.exit(app(standalone_mode=not json_lines))
    except Exception as error:  # the outermost place: whatever gets here is a bug of ours, or JSON wants it
        if said := getattr(error, "format_message", None):  # typer's, of a command line that it does not take
            complain(error, said())
            sys.exit(USAGE)
        if isinstance(error, typer.Abort):
            complain(error, "stopped")
            sys.exit(FAILED)
        complain(
            error,
            f"this is a bug in intellect-node ({type(error).__name__}): please report the trace. "
            "Nothing on disk or on chain was lost; running the same command again goes on from there.",
            bug=True,
        )
        sys.exit(BUG)
