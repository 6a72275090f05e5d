"""A run on a chain of its own, which a test may end and begin again, and roles as processes."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Digest, RunId
from ledger.deploy import deploy
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.keys import import_key
from node.launch import Plan, build_spec, create_run
from node.models.resolve import resolve
from tests.cli.command import PASSWORD, SECRETS, process

SECONDS = 90.0  # to come up beside other tests


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
    """A run on a chain of its own, which a test may end and begin again."""

    folder: Path
    rpc_url: str
    run: RunId
    root: Digest
    ledger: Callable[[int], Awaitable[EvmLedger]]
    anvil: Anvil
    roles: list[Role] = field(default_factory=list)

    def wallet(self, name: str, number: int) -> Path:
        """A new one with the key of anvil's account `number`."""
        path = self.folder / f"{name}.json"
        import_key(path, bytes(self.anvil.accounts[number].key).hex(), PASSWORD, iterations=1)
        return path

    def role(self, name: str, number: int, *more: str, url: str | None = None) -> Role:
        return self.again(name, self.wallet(name, number), self.folder / name, url or self.rpc_url, *more)

    def again(self, name: str, wallet: Path, home: Path, url: str, *more: str) -> Role:
        """A role's process, for the first time or once more."""
        running = process(
            name, "--wallet", wallet, "--run", str(self.run), "--host", "127.0.0.1", "--allow-private", "--rpc", url,
            "--deployment", self.folder / "contracts.json", *more, home=home,
        )  # fmt: skip
        self.roles.append(Role(running))
        return self.roles[-1]

    def close(self) -> None:
        for role in self.roles:
            with role.running as running:
                running.kill()


@asynccontextmanager
async def staged(folder: Path, state: Path | None = None) -> AsyncIterator[Stage]:
    base = resolve("tiny", lambda _: None)
    async with Anvil(block_time=1, state=state) as anvil:
        deployment = await deploy(anvil.rpc_url, anvil.accounts[0], 600)
        deployment.save(folder / "contracts.json")
        spec = build_spec("tiny", base, Plan("outage", max_steps=1, max_open=1))
        keys = [account.address for account in anvil.accounts]

        async def ledger(number: int) -> EvmLedger:
            return await EvmLedger.connect([anvil.rpc_url], deployment, anvil.accounts[number], None)

        owner = await ledger(0)
        run = await create_run(owner, spec, keys[1], [keys[2]], 1, [keys[3]], 10**21)
        await owner.close()
        root = Digest(bytes.fromhex(spec.model.manifest_root))
        stage = Stage(folder, anvil.rpc_url, run, root, ledger, anvil)
        try:
            yield stage
        finally:
            stage.close()
