"""Runs the command line so that it kills itself, as a power cut would, where a file says: faults come from outside.

    python trap.py ARMED COMMAND OPTIONS...

Every point of COMMAND's role is watched. When one is reached whose name the file ARMED holds, the file is used up and
the process gets SIGKILL from itself. Otherwise everything is as in `python -m cli`.
"""

import inspect
import os
import signal
import sys
from collections.abc import Callable
from functools import reduce, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.kills.points import ALL, BEFORE, Point


def die_if_armed(armed: Path, point: Point) -> None:
    """Of several processes that reach the point at once, one dies."""
    try:
        if armed.read_text() != point.name:
            return
        armed.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def watched(function: Callable[..., Any], armed: Path, points: list[Point]) -> Callable[..., Any]:
    """`function` with a look at `armed` before and after every call; `self` is not looked at."""

    def look(now: bool, arguments: object) -> None:
        for point in points:
            if (point.when == BEFORE) == now and (not point.text or point.text in repr(arguments[1:])):
                die_if_armed(armed, point)

    @wraps(function)
    async def later(*arguments: Any, **named: Any) -> Any:
        look(True, arguments)
        answer = await function(*arguments, **named)
        look(False, arguments)
        return answer

    @wraps(function)
    def at_once(*arguments: Any, **named: Any) -> Any:
        look(True, arguments)
        answer = function(*arguments, **named)
        look(False, arguments)
        return answer

    return later if inspect.iscoroutinefunction(function) else at_once


def set_traps(armed: Path, role: str) -> None:
    """Watches every point of `role`."""
    for target in {point.target for point in ALL if point.role == role}:
        module, path = target.split(":")
        *outer, name = path.split(".")
        owner = reduce(getattr, outer, import_module(module))
        points = [point for point in ALL if (point.role, point.target) == (role, target)]
        setattr(owner, name, watched(getattr(owner, name), armed, points))


def main() -> None:
    armed, words = Path(sys.argv[1]), sys.argv[2:]
    set_traps(armed, words[0])
    sys.argv[1:] = words
    from cli.main import main as run

    run()


if __name__ == "__main__":
    main()
