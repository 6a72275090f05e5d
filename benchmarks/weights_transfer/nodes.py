"""Processes of the measurements: begun, told what to do, ended; and the file that they move."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.shards.manifest import CHUNK_BYTES

HERE = Path(__file__).parent
IN_MEMORY = Path("/dev/shm")  # a disk would hide the network


@dataclass(slots=True)
class Told:
    """A process that answers lines of JSON; the first line that it says is `hello`."""

    process: subprocess.Popen[str]
    hello: dict[str, Any] = field(default_factory=dict)

    def tell(self, said: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Raises: RuntimeError: it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return dict(json.loads(line))

    def ask(self, said: dict[str, Any]) -> dict[str, Any]:
        self.tell(said)
        return self.answer()

    @property
    def url(self) -> str:
        return str(self.hello["url"])

    @property
    def port(self) -> int:
        return int(self.hello["port"] if "port" in self.hello else self.url.rpartition(":")[2])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass(slots=True)
class Lab:
    """One measurement's folder and processes; both go with it."""

    folder: Path
    stack: ExitStack

    def begin(self, program: str, *arguments: object) -> Told:
        command = [sys.executable, str(HERE / program), *map(str, arguments)]
        told = Told(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.stack.callback(told.end)
        told.hello = told.answer()
        return told

    def peer(self, name: str, port: int = 0, *options: object) -> Told:
        """A node of this project."""
        return self.begin("peer.py", self.folder / name, port, *options)


@contextmanager
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="weights-"))
        yield Lab(Path(folder), stack)


@contextmanager
def payload(size: int) -> Iterator[Path]:
    """A folder with one file of random bytes."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="payload-") as name:
        with (Path(name) / "model.bin").open("wb") as file:
            for start in range(0, size, CHUNK_BYTES):
                file.write(os.urandom(min(CHUNK_BYTES, size - start)))
        yield Path(name)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
