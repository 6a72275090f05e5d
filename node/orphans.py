"""Processes of a node that go with it, also while they are stopped or hang: no port and no GPU stays taken.

The reader of a pipe notices at once that its node is gone, on any system; a stopped process reads nothing, and then the
kernel kills it, on Linux (prctl(2), PR_SET_PDEATHSIG). That is bound to the thread that started it: it has to last.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h

_LAUNCHER: Final = ThreadPoolExecutor(
    max_workers=1, thread_name_prefix="launcher"
)  # whose thread ends with the process


def end_with(life: int) -> None:
    """Ends this process when the other end of the pipe `life`, its node's, is closed or its node is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # where it is refused, the pipe does in most cases
    threading.Thread(target=_follow, args=(life,), daemon=True).start()  # a node that was gone before is noticed too


def _follow(life: int) -> None:
    os.read(life, 1)
    os._exit(1)


def started(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """As `subprocess.Popen`, of a process that calls `end_with`, from any thread, one that ends before it too."""
    return _LAUNCHER.submit(_process, command, options).result()


def _process(command: Sequence[str], options: dict[str, Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, **options)
