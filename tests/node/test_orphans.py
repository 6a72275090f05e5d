"""Processes that end with their node, whatever they do."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from node.orphans import command, started

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 20.0
MODULE = """
import sys, time
from pathlib import Path
print(1, flush=True)
while not Path(sys.argv[1]).exists():  # it takes long to be imported
    time.sleep(0.01)
def main():
    print(*sys.argv, flush=True)
    time.sleep(60)
"""
# A node: it starts the child, says its number while that is importing, and does not close the pipe.
NODE = """
import os, subprocess, sys, time
from node.orphans import command, started
life, held = os.pipe()
pipes = {"pass_fds": (life,), "stdout": subprocess.PIPE}
child = started(command(life, "slow_module", sys.argv[1]), start_new_session=True, **pipes)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """In which there is a module that is imported until there is a file `imported`."""
    (tmp_path / "slow_module.py").write_text(MODULE)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}


def runs(pid: int) -> bool:
    """Whether there is such a process, ended ones that nobody waits for not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a stopped process on Linux alone")
@pytest.mark.parametrize("stopped", [True, False])
def test_a_process_ends_with_a_killed_node_when_it_is_still_importing_and_when_it_is_stopped_too(
    stopped: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    command_line = [sys.executable, "-c", NODE, str(tmp_path / "imported")]
    with subprocess.Popen(command_line, env=environment, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        node.kill()

    until(lambda: not runs(pid))


def test_a_process_outlives_the_thread_that_had_it_started_and_ends_with_its_pipe(
    environment: dict[str, str], tmp_path: Path
) -> None:
    imported = tmp_path / "imported"
    imported.touch()
    life, held = os.pipe()
    children = list[subprocess.Popen[bytes]]()

    def start() -> None:
        words = command(life, "slow_module", str(imported))
        children.append(started(words, pass_fds=(life,), stdout=subprocess.PIPE, env=environment))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    os.close(life)
    with children[0] as child:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        assert child.stdout.readline() == f"slow_module {imported}\n".encode()  # as if it had been run itself
        time.sleep(0.2)
        assert child.poll() is None
        os.close(held)
        assert child.wait(PATIENCE_SECONDS) == 1
