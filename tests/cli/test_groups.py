"""Options that stand together in one parameter: what typer makes of them, and what the command gets."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from cli.groups import grouped
from cli.main import app as program

Where = Annotated[str, typer.Option("--where", help="A place.")]
Count = Annotated[int, typer.Option("--count", min=1)]


@dataclass(frozen=True, slots=True)
class Trip:
    where: Where
    count: Count = 2


def told(*arguments: str) -> tuple[int, list[object], str]:
    """Exit code, what the command was called with, and what was printed."""
    calls: list[object] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @grouped
    def go(*, fast: bool = False, trip: Trip, slow: bool = False) -> None:
        """Goes."""
        calls.append((fast, trip, slow))

    result = CliRunner().invoke(app, arguments)
    return result.exit_code, calls, result.output


def test_a_command_gets_its_group_whole_and_the_others_as_they_are() -> None:
    assert told("--where", "there")[:2] == (0, [(False, Trip("there", 2), False)])
    assert told("--slow", "--count", "5", "--where", "x")[:2] == (0, [(False, Trip("x", 5), True)])


def test_a_group_without_what_it_needs_or_out_of_its_bounds_is_refused() -> None:
    assert told()[:2] == told("--where", "x", "--count", "0")[:2] == (2, [])


def test_the_help_has_the_options_of_a_group_in_its_place() -> None:
    code, _, text = told("--help")

    assert code == 0 and "Goes." in text and "A place." in text
    assert [text.index(name) for name in ("--fast", "--where", "--count", "--slow")] == sorted(
        text.index(name) for name in ("--fast", "--where", "--count", "--slow")
    )


def test_every_role_takes_the_options_of_the_network_and_only_a_worker_may_have_no_port() -> None:
    helps = {
        name: CliRunner().invoke(program, [name, "--help"]).output for name in ("join", "validate", "train", "relay")
    }

    for option in ("--peer", "--p2p-port", "--no-p2p", "--upload-limit", "--quota", "--advertise", "--allow-private"):
        assert all(option in text for text in helps.values()), option
    assert [name for name, text in helps.items() if "--no-inbound" in text] == ["join"]
    assert [name for name, text in helps.items() if "--no-serve" in text] == ["join", "validate"]
