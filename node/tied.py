"""A process that ends with its node: `python -m node.tied LIFE MODULE WORDS`, which runs `main` of MODULE with WORDS.

LIFE is the descriptor of a pipe that ends when the node is gone; then this process goes too, whatever it is doing.
It is tied before MODULE is imported, which can take seconds, and nothing is imported here that takes long.
"""

import ctypes
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def main() -> None:
    life, module, *words = sys.argv[1:]
    end_with(int(life))
    sys.argv = [module, *words]
    import_module(module).main()


def end_with(life: int) -> None:
    """Ends this process when the other end of the pipe `life`, its node's, is closed or its node is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # where it is refused, the pipe does in most cases
    threading.Thread(target=_follow, args=(life,), daemon=True).start()  # a node that was gone before is noticed too


def _follow(life: int) -> None:
    os.read(life, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
