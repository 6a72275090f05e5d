"""The closing table of a local network, for people."""

from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from node.devnet.report import Report


LOG_COLUMNS = 120  # of a file or a pipe, which have no width of their own


def closing(found: "Report") -> None:
    """Prints what happened, computed from chain events and files."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_COLUMNS)
    console.print()
    console.print(_figures(found.summary))
    console.print(_rows("versions", found.steps))
    if found.verdicts:
        console.print(_rows("rejected work, as the validators' evidence says", found.verdicts))
    for slash in found.summary["slashes"]:
        console.print(f"slashed: {slash['node']} lost {slash['tokens']} tokens for {slash['check']}")
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
        table.add_row(name.replace("_", " "), _text(value))
    return table


def _rows(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "none"
    return "" if value is None else str(value)
