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
from node.printed import Printed

HOST: Final = "node.p2p.host"
OURS: Final = "INTELLECT_NODE_"  # variables that are none of the process's business: a wallet's password is one
LEAVE_SECONDS: Final = 2.0
LAST_LINES: Final = 20  # among which one is no line of a drawing
PRINT_SECONDS: Final = 1.0  # for what it printed to come once it has ended: it is in a pipe


@dataclass(frozen=True, slots=True)
class Child:
    """The process, and this side of the socket pair on which it takes orders."""

    process: asyncio.subprocess.Process
    orders: socket.socket
    printed: Printed

    def last_words(self) -> str:
        """Why it ended, in its own words where there are any."""
        lines = self.printed.last_lines(LAST_LINES, PRINT_SECONDS)
        said = [text for line in lines if (text := line.strip(" |+-"))]  # trio draws groups of errors
        return said[-1] if said else f"it ended with {self.process.returncode}"


@asynccontextmanager
async def launched(listener: socket.socket, log: Path) -> AsyncIterator[Child]:
    """A process that takes connections on `listener`, and prints into `log`, anew and bounded; after the block it is
    gone.

    Raises: OSError: it cannot be started.
    """
    with ExitStack() as kept:
        ours, theirs = map(kept.enter_context, socket.socketpair())
        life, held = os.pipe()  # whose end it notices, whatever it is doing
        kept.callback(os.close, held)
        with ExitStack() as handed:
            handed.enter_context(theirs)
            handed.callback(os.close, life)
            printed = Printed(log)
            handed.callback(printed.closed)
            process = await _started(life, (theirs.fileno(), listener.fileno()), printed.descriptor)
        try:
            yield Child(process, ours, printed)
        finally:
            ours.close()
            await _ended(process)


async def _started(life: int, handed: tuple[int, int], output: int) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
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
