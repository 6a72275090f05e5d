"""What tests of roles put between a role and the world: a fast clock, ledgers and engines that break, tar pits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger.base import Ledger
from ledger.memory import MemoryLedger
from node.engines.base import Policy
from node.engines.scripted import ScriptedEngine
from node.errors import EngineError
from node.progress import OnProgress
from node.rollouts.rollout import Replay, Rollout, Sample

SPEED = 40.0  # seconds of the fast clock in one of the machine's
PATIENCE_SECONDS = 90.0  # of the machine's clock, for something to come about beside much else

Connect = Callable[[LocalAccount], Ledger]
Watch = Callable[[str, tuple[Any, ...]], None]


class Killed(Exception):
    """What ends a role here like a kill would."""


class Engineered(ScriptedEngine):
    """A scripted engine that counts its calls, and fails as often as it is told, with what it is told."""

    def __init__(self, policy: Policy, failures: int = 0, error: Exception | None = None) -> None:
        super().__init__(policy)
        self.generated = self.replayed = 0
        self.failures, self.error = failures, error or EngineError("out of memory")

    def generate(self, seed: bytes, prompts: Sequence[tuple[int, ...]], progress: OnProgress) -> list[Sample]:
        self.generated += 1
        self._perhaps_fail()
        return super().generate(seed, prompts, progress)

    def replay(self, seed: bytes, rollouts: Sequence[Rollout], progress: OnProgress) -> list[Replay]:
        self.replayed += 1
        self._perhaps_fail()
        return super().replay(seed, rollouts, progress)

    def _perhaps_fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise self.error


class FastClock:
    """A `Clock` of which a second passes in 1/40 s; what is waited for comes about, only sooner."""

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


def key(number: int) -> LocalAccount:
    """The key of one participant; small numbers are private keys like any other."""
    return Account.from_key(number.to_bytes(32))


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Waits until `condition` holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not come about: {what or condition}")
        await asyncio.sleep(0.005)


@asynccontextmanager
async def tar_pit() -> AsyncIterator[str]:
    """The URL of a server that takes every question and never answers."""
    handling: set[asyncio.Task[Any]] = set()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.add(task)
        try:
            await reader.read()
        finally:
            writer.close()
            handling.discard(task)

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for task in list(handling):
        task.cancel()
    await asyncio.gather(*handling, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in the loop's next turn


class Watched:
    """A ledger that lets a test look at, or break, what goes through it, by name and arguments."""

    def __init__(self, inner: MemoryLedger, before: Watch | None = None, after: Watch | None = None) -> None:
        self._inner, self._before, self._after = inner, before, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any) -> Any:
            if self._before is not None:
                self._before(name, arguments)
            answer = await found(*arguments)
            if self._after is not None:
                self._after(name, arguments)
            return answer

        return call
