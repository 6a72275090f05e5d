"""Plain vLLM as the benchmark sees it: a process that is asked for tokens, and gives nothing but tokens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from node.engines.base import Prompt
from node.engines.vllm.engine import environment
from node.engines.vllm.messages import Settings
from node.errors import EngineError

HOST = Path(__file__).with_name("plain_host.py")


@dataclass(frozen=True, slots=True)
class Plain:
    """Under way; `tokens` of output for every prompt, whatever the model says of its end."""

    connection: Connection
    tokens: int

    def generate(self, prompts: Sequence[Prompt], temperature: float) -> list[Prompt]:
        return self._asked(prompts, self.tokens, temperature)

    def prefill(self, sequences: Sequence[Prompt]) -> list[Prompt]:
        """Runs whole sequences, for one further token each."""
        return self._asked(sequences, 1, 0.0)

    def _asked(self, prompts: Sequence[Prompt], tokens: int, temperature: float) -> list[Prompt]:
        self.connection.send((prompts, tokens, temperature))
        found: list[Prompt] = self.connection.recv()
        return found


@contextmanager
def plain(settings: Settings, threads: int, log: Path) -> Iterator[Plain]:
    """A process, started as the engine's is; what it prints goes to `log`. Raises: EngineError: it did not start."""
    ours, theirs = socket.socketpair()
    with theirs, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(HOST), str(theirs.fileno())],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(theirs.fileno(),),
            env=os.environ | environment((), threads), start_new_session=True,
        )  # fmt: skip
    try:
        with Connection(ours.detach()) as connection:
            connection.send(settings)
            try:
                connection.recv()
            except EOFError:
                raise EngineError(f"plain vLLM did not start; its log is {log}") from None
            yield Plain(connection, settings.policy.max_output_tokens)
            connection.send(None)
    finally:
        process.terminate()
        process.wait()
