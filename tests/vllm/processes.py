"""Processes of engines, found and ended by their numbers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from node.engines.vllm.process import HOST

LOOK_SECONDS = 0.02


def engines(parent: int | None = None) -> list[int]:
    """Engine processes that are children of `parent`, of this process by default."""
    tasks = Path(f"/proc/{parent or os.getpid()}/task")
    children = [int(child) for path in tasks.glob("*/children") for child in path.read_text().split()]
    return [child for child in children if HOST in command(child)]


def command(process: int) -> str:
    """Its command line; nothing if it is gone or only waited for."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def family(process: int) -> list[int]:
    """The process and all that descend from it."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = {int(child) for path in tasks for child in path.read_text().split()}
    return [process, *(one for child in sorted(children) for one in family(child))]


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def until(true: Callable[[], object], seconds: float) -> float:
    """Waits until it is true, for `seconds` at most; how long it took."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - begun


@contextmanager
def killing(count: int) -> Iterator[list[int]]:
    """Within it, the first `count` engine processes that this process starts are killed, as the kernel does it."""
    before = engines()
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < count and not over.wait(LOOK_SECONDS):
            for process in engines():
                if process not in (*before, *killed):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
