"""Engine processes: started, asked from any thread, and noticed when they die or say nothing any more."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from node.engines.vllm.messages import START, Abort, Answer, Asked, Done, Failed, Order, Progressed, Settings
from node.errors import EngineError
from node.orphans import command, started
from node.printed import Printed
from node.progress import OnProgress

START_SECONDS = 1800.0  # for a model to be read, from a slow disk too
HANG_SECONDS = 300.0  # without a word while something is asked: reports come twice a second, a long step takes seconds
LEAVE_SECONDS = 10.0  # for a process that was told to go
LOOK_SECONDS = 1.0  # between two looks whether anybody still waits for an answer
LOG_LINES = 5  # of what a process that ended has printed, in the message
PRINT_SECONDS = 1.0  # for that to come; ranks that still end, and may print, are not waited for
OURS = "INTELLECT_NODE_"  # variables that are none of an engine's business: a wallet's password is one
HOST = "node.engines.vllm.host"

Answers = SimpleQueue[tuple["EngineProcess", Answer | None]]  # None: the process is gone


class EngineProcess:
    """Runs until it is closed, fails or is found dead; it cannot be started again."""

    def __init__(
        self, settings: Settings, environment: Mapping[str, str], log: Path, patience: float = HANG_SECONDS
    ) -> None:
        """Starts the process, which takes each order within `patience` seconds; what it prints goes to `log`, anew.

        Raises: OSError.
        """
        self._patience = patience
        self._numbers = itertools.count(START + 1)
        self._waiting: dict[int, Answers] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # apart: who hears must not wait for who sends
        self._over: str | None = None
        self._printed = Printed(log)
        try:
            self._socket, theirs = socket.socketpair()
            life, self._life = os.pipe()
            output = self._printed.descriptor
            with theirs:
                self._process = started(
                    command(life, HOST, str(theirs.fileno())),
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(theirs.fileno(), life),
                    env=_environment(environment), start_new_session=True,
                )  # fmt: skip
        finally:
            self._printed.closed()
        os.close(life)
        of_a_write = struct.pack("ll", int(patience / 2) + 1, 0)  # seconds; an order of any size has two that wait
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, of_a_write)
        self._connection = Connection(os.dup(self._socket.fileno()))
        self._ready: Answers = SimpleQueue()
        self._waiting[START] = self._ready
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()
        self._send(settings)

    @property
    def alive(self) -> bool:
        return self._over is None

    def started(self) -> Any:
        """What the process says of itself when it is ready. Raises: EngineError."""
        return gather([self], self._ready, _unheard, START_SECONDS)[0]

    def begin(self, order: Order, answers: Answers) -> int:
        """Asks for `order`; what is answered goes into `answers`. The number to `leave` it by."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = answers
            if self._over is not None:
                answers.put((self, None))
        self._send(Asked(number, order))
        return number

    def leave(self, number: int) -> None:
        """Nobody waits for the answer to order `number` any more: where it is under way, it is dropped."""
        with self._lock:
            unanswered = self._waiting.pop(number, None) is not None
        if unanswered and self.alive:
            self._send(Asked(next(self._numbers), Abort(number)))

    def _send(self, message: Settings | Asked) -> None:
        with self._sending:
            try:
                self._connection.send(message)
            except BlockingIOError:  # half a message may have been sent: nothing can follow
                self._over = f"it took no order for {self._patience:.0f} s"
                self._process.kill()
            except OSError:
                pass  # that a process is gone is noticed by who waits for its answer

    def _hear(self) -> None:
        """Hands answers to who waits for them, until the process is gone; then everybody hears of that."""
        with suppress(EOFError, OSError):
            while True:
                answer: Answer = self._connection.recv()
                if isinstance(answer, Failed):
                    self._over = answer.reason
                    break
                with self._lock:
                    known = self._waiting.get if isinstance(answer, Progressed) else self._waiting.pop
                    waiting = known(answer.number, None)
                if waiting is not None:
                    waiting.put((self, answer))
        with self._lock:
            self._over = self._over or ""
            for waiting in self._waiting.values():
                waiting.put((self, None))

    def why_ended(self) -> str:
        """Why it is gone, with the end of its log."""
        if self._over:
            return f"the engine process gave up: {self._over}. {self.last_words()}"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
        return f"the engine process {how}. {self.last_words()}"

    def last_words(self) -> str:
        lines = self._printed.last_lines(LOG_LINES, PRINT_SECONDS)
        return f"Its log is {self._printed.log}" + "".join(f"\n  {line}" for line in lines)

    def close(self) -> None:
        """Ends the process, whatever it does."""
        with self._lock:
            life, self._life = self._life, -1
        if life >= 0:
            os.close(life)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        with self._socket, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ranks that still end hold the other side open
        self._hearing.join()
        self._connection.close()


def ask(orders: Sequence[tuple[EngineProcess, Order]], progress: OnProgress, patience: float) -> list[Any]:
    """What each process answers to its order, at once.

    Raises: EngineError: one failed, died or said nothing for `patience` seconds.
    """
    answers: Answers = SimpleQueue()
    numbers = [(process, process.begin(order, answers)) for process, order in orders]
    try:
        return gather([process for process, _ in orders], answers, progress, patience)
    finally:
        for process, number in numbers:
            process.leave(number)


def gather(processes: Sequence[EngineProcess], answers: Answers, progress: OnProgress, patience: float) -> list[Any]:
    """One value from each of `processes`. `progress` hears the sums of theirs, and once a second; it may raise, where
    nobody waits any more. Raises: EngineError."""
    values: dict[EngineProcess, Any] = {}
    figures: dict[EngineProcess, tuple[int, int]] = {}
    heard = time.monotonic()
    while len(values) < len(processes):
        try:
            process, answer = answers.get(timeout=min(LOOK_SECONDS, patience))
        except Empty:
            if time.monotonic() - heard < patience:
                progress(*_sums(figures))
                continue
            silent = next(process for process in processes if process not in values)
            raise EngineError(f"the engine has said nothing for {patience:.0f} s. {silent.last_words()}") from None
        heard = time.monotonic()
        match answer:
            case Progressed(_, done, total):
                figures[process] = done, total
                progress(*_sums(figures))
            case Done(_, value):
                values[process] = value
            case _:
                raise EngineError(process.why_ended())
    return [values[process] for process in processes]


def _sums(figures: Mapping[EngineProcess, tuple[int, int]]) -> tuple[int, int]:
    return sum(done for done, _ in figures.values()), sum(total for _, total in figures.values())


def _unheard(_done: int, _total: int) -> None:
    return None


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | dict(more)
