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

from node.orphans import started

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 20.0
CHILD = """
import sys, time
from node.orphans import end_with
end_with(int(sys.argv[1]))
print(1, flush=True)
time.sleep(60)
"""
# A node: it starts the child, says its number, and does not close the pipe.
NODE = f"""
import os, subprocess, sys, time
from node.orphans import started
life, held = os.pipe()
pipes = {{"pass_fds": (life,), "stdout": subprocess.PIPE}}
child = started([sys.executable, "-c", {CHILD!r}, str(life)], start_new_session=True, **pipes)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


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
def test_a_process_ends_with_a_killed_node_when_it_is_stopped_too(stopped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", NODE], cwd=ROOT, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        node.kill()

    until(lambda: not runs(pid))


def test_a_process_outlives_the_thread_that_had_it_started_and_ends_with_its_pipe() -> None:
    life, held = os.pipe()
    children = list[subprocess.Popen[bytes]]()

    def start() -> None:
        children.append(
            started([sys.executable, "-c", CHILD, str(life)], pass_fds=(life,), stdout=subprocess.PIPE, cwd=ROOT)
        )

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    os.close(life)
    with children[0] as child:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        time.sleep(0.2)
        assert child.poll() is None
        os.close(held)
        assert child.wait(PATIENCE_SECONDS) == 1
