"""One libp2p process: launched with what it needs and nothing else, and gone when nobody wants it any more."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.orphans import command

HOST: Final = "node.p2p.host"
OURS: Final = "INTELLECT_NODE_"  # variables that are none of the process's business: a wallet's password is one
LEAVE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Child:
    """The process, and this side of the socket pair on which it takes orders."""

    process: asyncio.subprocess.Process
    orders: socket.socket
    log: Path

    def last_words(self) -> str:
        """Why it ended, in its own words where there are any."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        said = [text for line in lines if (text := line.strip(" |+-"))]  # trio draws groups of errors
        return said[-1] if said else f"it ended with {self.process.returncode}"


@asynccontextmanager
async def launched(listener: socket.socket, log: Path) -> AsyncIterator[Child]:
    """A process that takes connections on `listener`, and prints into `log`, anew; after the block it is gone.

    Raises: OSError: it cannot be started.
    """
    with ExitStack() as kept:
        ours, theirs = map(kept.enter_context, socket.socketpair())
        life, held = os.pipe()  # whose end it notices, whatever it is doing
        kept.callback(os.close, held)
        with ExitStack() as handed:
            handed.enter_context(theirs)
            handed.callback(os.close, life)
            process = await _started(life, (theirs.fileno(), listener.fileno()), log)
        try:
            yield Child(process, ours, log)
        finally:
            ours.close()
            await _ended(process)


async def _started(life: int, handed: tuple[int, int], log: Path) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    with log.open("wb") as output:  # a file of its own, opened once a process
        return await asyncio.create_subprocess_exec(
            *command(life, HOST, *map(str, handed)), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            pass_fds=(life, *handed), env=environment, start_new_session=True,
        )  # fmt: skip


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Waits for the process, which has lost its node; kills it where it does not go."""
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
