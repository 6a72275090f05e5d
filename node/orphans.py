"""Processes of a node that go with it, also while they are stopped or hang: no port and no GPU stays taken.

Each is run by `tied`. The reader of a pipe notices at once that its node is gone, on any system; a stopped process
reads nothing, and then the kernel kills it, on Linux (prctl(2), PR_SET_PDEATHSIG). That is bound to the thread that
started it: it has to last.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

# Whose thread ends with the process.
_LAUNCHER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")


def command(life: int, module: str, *words: str) -> Sequence[str]:
    """What runs `main` of `module`, in a process that ends when the other end of the pipe `life` does."""
    return (sys.executable, "-P", "-m", "node.tied", str(life), module, *words)


def started(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """As `subprocess.Popen`, of a `command` as above, from any thread, one that ends before it too."""
    return _LAUNCHER.submit(_process, command, options).result()


def _process(command: Sequence[str], options: dict[str, Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, **options)
