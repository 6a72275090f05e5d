"""The closing table of a local network, for people."""

from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from ledger.base import amount_text

if TYPE_CHECKING:
    from node.devnet.report import Report


LOG_COLUMNS = 100  # of a file or a pipe, which have no width of their own

UNITS = {"seconds": "s", "output_tokens": "of the model"}  # of the figures that have one
STEPS = "step: the optimiser step that made the version. reward: mean of its accepted rollouts, each 0 to 1."
PERMITTED = (
    "measured: by the validators. permitted: the widest that honest engines showed before the run, fixed in its "
    "specification; for what is recomputed (a reward, an ending), what the recomputation gives."
)


def closing(found: "Report") -> None:
    """Prints what happened, computed from chain events and files."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_COLUMNS)
    console.print()
    console.print(_figures(found.summary))
    console.print(_versions(found.steps))
    if found.verdicts:
        console.print(_rejected(found.verdicts))
    for slash in found.summary["slashes"]:
        console.print(f"slashed: {slash['node']} lost {amount_text(int(slash['amount']))} for {slash['check']}")
        typer.echo(f"  transaction {slash['transaction']}")
    for failure in found.failures:
        typer.echo(f"NOT AS IT SHOULD BE: {failure}")
    if not found.failures:
        typer.echo("all as it should be: every submission is final, honest work is paid, fraud is not")


def _figures(summary: dict[str, Any]) -> Table:
    table = Table(title="what happened", show_header=False)
    for name, value in summary.items():
        if name == "slashes":
            continue
        if name == "held_out":
            for version, figure in value.items():
                text = f"{100 * figure['mean']:.1f}% ± {100 * figure['standard_error']:.1f}"
                table.add_row(
                    f"held-out reward, version {version}", f"{text} ({figure['prompts']} x {figure['samples']})"
                )
            continue
        table.add_row(name.replace("_", " "), _with_unit(name, value))
    return table


def _with_unit(name: str, value: Any) -> str:
    if name == "rewards":
        return "\n".join(f"{who} {amount_text(int(amount))}" for who, amount in value.items())
    if name == "claimed":
        return amount_text(int(value))
    return f"{_text(value)} {UNITS.get(name, '')}".rstrip()


def _versions(rows: list[dict[str, Any]]) -> Table:
    """One row a version. The caption says what its figures are of."""
    table = Table(title="versions", caption=STEPS, caption_justify="left")
    for name in rows[0]:
        table.add_column({"held_by": "held by nodes", "reward": "mean reward"}.get(name, name))
    for row in rows:
        table.add_row(*(_text("base" if name == "step" and not value else value) for name, value in row.items()))
    return table


def _rejected(rows: list[dict[str, Any]]) -> Table:
    """One row a submission; what was found stands below each other, so that long reasons leave room."""
    table = Table(title="rejected work, as the validators' evidence says", caption=PERMITTED, caption_justify="left")
    for name in ("node", "version", "slot", "state", "check", "faults signed", "found"):
        table.add_column(name)
    for row in rows:
        plain = (row[name] for name in ("node", "version", "slot", "state", "check", "faults_signed"))
        found = [f"{name} {row[name]}" for name in ("measured", "permitted") if row[name] is not None]
        table.add_row(*map(_text, plain), "\n".join([*found, *([row["what"]] if row["what"] else [])]))
    return table


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "none"
    return "" if value is None else str(value)
