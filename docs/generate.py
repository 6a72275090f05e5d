"""Writes docs/cli.md: every command with the help that the program itself prints.

Usage: python docs/generate.py [--check]. With --check it writes nothing, and exits with 1 if the page is stale.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
PROGRAM = "intellect-node"
COLUMNS = 100

HEAD = """# Commands

This page is generated from the program's own help by `make docs`; `make lint` fails when it is stale.

Exit codes are the same everywhere: 0 done, 1 failed or stopped, 2 something the user must change, 70 a bug, 75 trying
again can help. People are told amounts in tokens (`12.5 tSTAKE`, every digit), times in UTC and numbers to four digits;
`--json` has amounts in base units as text (a token is 10^18), times in seconds since 1970 and numbers as they are. What
the messages mean is in [operating.md](operating.md).
"""


def page() -> str:
    """The whole of docs/cli.md."""
    sections = [_section(path) for path in ((), *_paths(get_command(app)))]
    return "\n".join([HEAD, *sections])


def _paths(group: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Names that lead to every command under `group`, groups before what is in them."""
    for name, command in getattr(group, "commands", {}).items():
        path = (*before, name)
        yield path
        yield from _paths(command, path)


def _section(path: tuple[str, ...]) -> str:
    title = " ".join((PROGRAM, *path))
    return f"## {title}\n\n```text\n{_help(path)}\n```\n"


def _help(path: tuple[str, ...]) -> str:
    """What `--help` prints, at a width that does not depend on the terminal."""
    result = CliRunner().invoke(app, [*path, "--help"], prog_name=PROGRAM, terminal_width=COLUMNS, color=False)
    if result.exit_code:
        raise RuntimeError(f"{' '.join(path)} --help ended with {result.exit_code}: {result.output}")
    return result.output.strip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is stale")
    check = parser.parse_args().check
    text = page()
    if PAGE.is_file() and PAGE.read_text() == text:
        return 0
    if check:
        print(f"{PAGE.relative_to(ROOT)} is stale: run make docs")
        return 1
    PAGE.write_text(text)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
