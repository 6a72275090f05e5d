"""A chain that goes away under a running role: the role waits, says so once, goes on, and does nothing twice."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ledger.base import Digest, EndpointSet, RunId, Submitted, Version
from ledger.deploy import deploy
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.keys import import_key
from node.launch import Plan, build_spec, create_run
from node.models.resolve import resolve
from tests.cli.command import PASSWORD, SECRETS, process
from tests.ledger.rpc_proxy import RpcProxy

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

    def role(self, name: str, number: int, *more: str, url: str | None = None) -> Role:
        wallet = self.folder / f"{name}.json"
        import_key(wallet, bytes(self.anvil.accounts[number].key).hex(), PASSWORD, iterations=1)
        running = process(
            name, "--wallet", wallet, "--run", str(self.run), "--host", "127.0.0.1", "--allow-private", "--rpc",
            url or self.rpc_url, "--deployment", self.folder / "contracts.json", *more, home=self.folder / name,
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


@pytest.mark.timeout(300)
async def test_a_role_waits_for_its_chain_says_so_once_and_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "chain.json"
    async with staged(tmp_path, state) as stage:
        relay = stage.role("relay", 3)
        await relay.logs("serving")
        await stage.anvil.stop()  # it writes down its chain
        await relay.logs("chain unreachable, trying again")
        port = int(stage.rpc_url.rpartition(":")[2])
        async with Anvil(block_time=1, state=state, port=port) as again:
            await relay.logs("chain back")
            stage.anvil = again
            trainer = await stage.ledger(1)
            await trainer.publish_checkpoint(stage.run, Version(0), stage.root)
            await relay.logs("published", "version=0")
            head = await trainer.head()
            events = await trainer.events(stage.run, 0, head.number)
            await trainer.close()
            relay.running.terminate()
            code = await relay.end()

    assert code == 1
    assert relay.count("chain unreachable") == relay.count("chain back") == relay.count("serving") == 1
    assert sum(isinstance(event, EndpointSet) for event in events) == 1


@pytest.mark.timeout(300)
async def test_a_role_stops_when_its_chain_was_started_anew(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        relay = stage.role("relay", 3)
        await relay.logs("serving")
        await stage.anvil.stop()
        await relay.logs("chain unreachable, trying again")
        port = int(stage.rpc_url.rpartition(":")[2])
        async with Anvil(block_time=1, port=port):
            code = await relay.end()

    assert code == 2
    assert relay.lines[-1].startswith(f"error: the chain at 127.0.0.1:{port} was started anew: ")
    assert (
        "Give the chain that was meant with --rpc, or deploy the contracts and create the run again" in relay.lines[-1]
    )


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_a_worker_that_loses_the_chain_while_it_commits_commits_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, RpcProxy(stage.rpc_url) as proxy:
        trainer = stage.role("train", 1, "--model", "tiny")
        await trainer.logs("published", "version=0")
        worker = stage.role("join", 4, "--engine", "scripted", url=proxy.url)
        await worker.logs("generated", "slot=0")
        await proxy.down()  # wherever its transaction is
        await worker.logs("chain unreachable")
        await proxy.up()
        await worker.logs("submitted", "commitment=")
        reader = await stage.ledger(0)
        events = await reader.events(stage.run, 0, (await reader.head()).number)
        await reader.close()
        for role in (worker, trainer):
            role.running.terminate()
            assert await role.end() == 1

    assert sum(isinstance(event, Submitted) for event in events) == 1
    assert worker.count("generated") == worker.count("submitted", "commitment=") == 1
