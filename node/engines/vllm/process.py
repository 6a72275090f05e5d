"""An engine process: started, asked from any thread, and noticed when it dies or says nothing any more."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from node.engines.vllm.messages import START, Answer, Asked, Done, Failed, Order, Progressed, Settings
from node.errors import EngineError
from node.progress import OnProgress

START_SECONDS = 1800.0  # for a model to be read, from a slow disk too
HANG_SECONDS = 300.0  # without a word while something is asked: reports come twice a second, a long step takes seconds
LEAVE_SECONDS = 10.0  # for a process that was told to go
LOG_LINES = 5  # of a process that ended, in the message
OURS = "INTELLECT_NODE_"  # variables that are none of an engine's business: a wallet's password is one
HOST = "node.engines.vllm.host"


class EngineProcess:
    """Runs until it is closed, fails or is found dead; it cannot be started again. Safe to ask from several threads."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], log: Path) -> None:
        """Starts the process; what it prints goes to `log`, anew. Raises: EngineError."""
        self._log = log
        self._numbers = itertools.count(START + 1)
        self._waiting: dict[int, SimpleQueue[Answer | None]] = {START: SimpleQueue()}
        self._lock = threading.Lock()
        self._over: str | None = None
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        with theirs, log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", HOST, str(theirs.fileno()), str(life)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(theirs.fileno(), life),
                env=_environment(environment), start_new_session=True,
            )  # fmt: skip
        os.close(life)
        self._connection = Connection(ours.detach())
        threading.Thread(target=self._hear, daemon=True).start()
        self._send(settings)

    @property
    def alive(self) -> bool:
        return self._over is None

    def started(self) -> Any:
        """What the process says of itself when it is ready. Raises: EngineError."""
        return self._answer(START, lambda _done, _total: None, START_SECONDS)

    def ask(self, order: Order, progress: OnProgress) -> Any:
        """The answer to `order`. Raises: EngineError: the process failed, died or hangs; it is gone then."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = SimpleQueue()
            if self._over is not None:
                self._waiting[number].put(None)
        self._send(Asked(number, order))
        return self._answer(number, progress, HANG_SECONDS)

    def _send(self, message: Settings | Asked) -> None:
        with self._lock, suppress(OSError):  # a process that is gone is noticed by who waits for its answer
            self._connection.send(message)

    def _answer(self, number: int, progress: OnProgress, patience: float) -> Any:
        answers = self._waiting[number]
        try:
            while True:
                match answers.get(timeout=patience):
                    case Progressed(_, done, total):
                        progress(done, total)
                    case Done(_, value):
                        return value
                    case _:
                        raise EngineError(f"{self._why()}. Its log is {self._log}{self._tail()}")
        except Empty:
            self.close()
            raise EngineError(
                f"the engine process has said nothing for {patience:.0f} s, so it was killed. "
                f"Its log is {self._log}{self._tail()}"
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def _hear(self) -> None:
        """Hands answers to who waits for them, until the process is gone; then everybody hears of that."""
        with suppress(EOFError, OSError):
            while True:
                answer: Answer = self._connection.recv()
                if isinstance(answer, Failed):
                    self._over = answer.reason
                    break
                with self._lock:
                    waiting = self._waiting.get(answer.number)
                if waiting is not None:
                    waiting.put(answer)
        with self._lock:
            self._over = self._over or ""
            for waiting in self._waiting.values():
                waiting.put(None)

    def _why(self) -> str:
        if self._over:
            return f"the engine process gave up: {self._over}"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
        return f"the engine process {how}"

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self._log.exists() else []
        return "".join(f"\n  {line}" for line in lines)

    def close(self) -> None:
        """Ends the process, whatever it does, and its own children with it."""
        with suppress(OSError):
            os.close(self._life)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._connection.close()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | dict(more)
