"""The command line, run by its entry point in this process or in one of its own; what it said never has a secret."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests import loggers

PASSWORD = "correct horse battery"
SECRETS = (PASSWORD, "secret-of-the-account", "11" * 32)  # the middle one is the path of `RpcProxy`'s URL


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        both = self.out + self.err
        assert "Traceback" not in both, both
        assert not [secret for secret in SECRETS if secret in both], both

    @property
    def said(self) -> str:
        """The last line of standard error."""
        return self.err.strip().rpartition("\n")[2]


def command(*words: str | Path, home: Path, **environment: str) -> Answer:
    """The program in this process: the same entry point, without a second of imports each time."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    told = {"INTELLECT_NODE_HOME": str(home), "INTELLECT_NODE_PASSWORD": PASSWORD, **environment}
    from cli.main import main

    with (
        patch.object(sys, "argv", ["intellect-node", *map(str, words)]),
        patch.dict(os.environ, told),
        patch.object(sys, "stdin", io.StringIO()),
        loggers.restored(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def process(*words: str | Path, home: Path, **environment: str) -> "subprocess.Popen[str]":
    """The program in a process of its own, both outputs in one pipe."""
    told = {"INTELLECT_NODE_HOME": str(home), "INTELLECT_NODE_PASSWORD": PASSWORD, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **told, **environment},
    )  # fmt: skip


def finished(running: "subprocess.Popen[str]", seconds: float = 60) -> Answer:
    """What a process said until its end, from where nobody has read it yet."""
    try:
        out, _ = running.communicate(timeout=seconds)
    finally:
        running.kill()
    return Answer(running.returncode, "", out)
