"""Roles as processes, on a chain of a test's own."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ledger.devnet import Anvil
from tests.cli.chain import Chain, prepared
from tests.cli.command import SECRETS, process

SECONDS = 90.0  # to come up beside other tests
COMMANDS = {"trainer": "train", "worker": "join", "relay": "relay"}


@dataclass
class Role:
    """A role's process and the lines that it has logged."""

    running: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    async def logs(self, *words: str, count: int = 1) -> None:
        """Waits until `count` lines have had all of `words`."""
        async with asyncio.timeout(SECONDS):
            while self.count(*words) < count:
                line = await asyncio.to_thread(self.running.stdout.readline)  # type: ignore[union-attr]
                assert line, f"ended with {self.running.wait()}: {''.join(self.lines)}"
                self.lines.append(line)

    def count(self, *words: str) -> int:
        return sum(all(word in line for word in words) for line in self.lines)

    async def end(self) -> int:
        rest, _ = await asyncio.to_thread(self.running.communicate, timeout=SECONDS)
        self.lines += rest.splitlines(keepends=True)
        said = "".join(self.lines)
        assert "Traceback" not in said and not [secret for secret in SECRETS if secret in said], said
        return self.running.returncode


@dataclass
class Stage:
    """A chain that a test may end and begin again, and the roles that were started on it."""

    chain: Chain
    roles: list[Role] = field(default_factory=list)

    def start(self, role: str, *more: str, url: str | None = None, home: Path | None = None) -> Role:
        """A process of the role, for the first time or once more; `url` is its endpoint where not the chain's."""
        chain = self.chain
        running = process(
            COMMANDS[role], "--wallet", chain.wallets[role], "--run", str(chain.run), "--host", "127.0.0.1",
            "--allow-private", "--no-p2p", *chain.at(url), *more, home=home or chain.folder / role,
        )  # fmt: skip
        self.roles.append(Role(running))
        return self.roles[-1]

    def close(self) -> None:
        for role in self.roles:
            with role.running as running:
                running.kill()


@asynccontextmanager
async def staged(folder: Path, state: Path | None = None) -> AsyncIterator[Stage]:
    """A block a second; `state` is where the chain is kept when it ends."""
    async with Anvil(block_time=1, state=state) as anvil:
        stage = Stage(await prepared(anvil, folder))
        try:
            yield stage
        finally:
            stage.close()
