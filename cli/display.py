"""How a result is printed: for scripts exact, in base units and seconds since 1970; for people in their own units."""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import typer

AMOUNTS = frozenset(  # base units of the stake token, as text
    {
        "allocated", "claimed", "free", "free_stake", "locked", "penalty", "pot", "ready_to_withdraw", "reserved",
        "rewards", "stake_per_node", "staked", "still_unbonding", "tokens", "unbonding", "withdrawn",
    }
)  # fmt: skip
GAS = frozenset({"gas_wei", "node_gas_wei"})
TIMES = frozenset({"all_ready_by", "ended_at", "ready_at", "time"})  # of blocks
DIGITS = 4  # of a measured number: a reward is a float32, a mean has an error of its own


def show(value: Any, as_json: bool, empty: str = "nothing") -> None:
    """Prints a result: JSON, or one `name  value` line per field and a table per list of records, `empty` for none."""
    if as_json:
        typer.echo(json.dumps(value, indent=2))
    elif value == []:
        typer.echo(empty)
    elif isinstance(value, list):
        _table(value)
    else:
        fields, tables = _parted(value)
        width = max(map(len, fields), default=0)
        for key, field in fields.items():
            typer.echo(f"{key:<{width}}  {field_text(key, field)}")
        for key, rows in tables.items():
            typer.echo(f"\n{key}:")
            _table(rows)


def field_text(key: str, value: Any) -> str:
    """A field as people read it, by its name."""
    from ledger.base import amount_text
    from node.log import wei_text

    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {field_text(name, part)}" for name, part in value.items()) or "none"
    if key in AMOUNTS:
        return amount_text(int(value))
    if key in GAS:
        return wei_text(int(value))
    if key in TIMES:
        return when(value, int(time.time()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(field_text(key, item) for item in value) or "none"
    return str(value)


def when(time: int, now: int) -> str:
    """A block's time, and how far off it is. Seconds since 1970."""
    return f"{clock(time)} ({'in ' if time > now else ''}{span(abs(time - now))}{' ago' if time <= now else ''})"


def clock(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _parted(value: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain fields, and those that are lists of records."""
    tables = {key: rows for key, rows in value.items() if isinstance(rows, list) and rows and isinstance(rows[0], dict)}
    return {key: field for key, field in value.items() if key not in tables}, tables


def _table(rows: list[dict[str, Any]]) -> None:
    columns = list(rows[0])
    cells = [columns, *([field_text(column, row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        typer.echo(_padded(line, widths))


def _padded(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
