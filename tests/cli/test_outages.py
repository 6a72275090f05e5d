"""A chain that goes away under a running role: the role waits, says so once, goes on, and does nothing twice."""

from pathlib import Path

import pytest

from ledger.base import EndpointSet, Submitted, Version
from ledger.devnet import Anvil
from tests.cli.stage import staged
from tests.ledger.rpc_proxy import RpcProxy


@pytest.mark.timeout(300)
async def test_a_role_waits_for_its_chain_says_so_once_and_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "chain.json"
    async with staged(tmp_path, state) as stage:
        relay = stage.start("relay")
        await relay.logs("serving")
        await stage.chain.anvil.stop()  # it writes down its chain
        await relay.logs("chain unreachable, trying again")
        port = int(stage.chain.anvil.rpc_url.rpartition(":")[2])
        async with Anvil(block_time=1, state=state, port=port) as again:
            await relay.logs("chain back")
            stage.chain.anvil = again
            trainer = await stage.chain.ledger("trainer")
            await trainer.publish_checkpoint(stage.chain.run, Version(0), stage.chain.root)
            await relay.logs("published", "version=0")
            head = await trainer.head()
            events = await trainer.events(stage.chain.run, 0, head.number)
            await trainer.close()
            relay.running.terminate()
            code = await relay.end()

    assert code == 1
    assert relay.count("chain unreachable") == relay.count("chain back") == relay.count("serving") == 1
    assert sum(isinstance(event, EndpointSet) for event in events) == 1


@pytest.mark.timeout(300)
async def test_a_role_stops_when_its_chain_was_started_anew(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        relay = stage.start("relay")
        await relay.logs("serving")
        await stage.chain.anvil.stop()
        await relay.logs("chain unreachable, trying again")
        port = int(stage.chain.anvil.rpc_url.rpartition(":")[2])
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
    async with staged(tmp_path) as stage, RpcProxy(stage.chain.anvil.rpc_url) as proxy:
        trainer = stage.start("trainer", "--model", "tiny")
        await trainer.logs("published", "version=0")
        worker = stage.start("worker", "--engine", "scripted", url=proxy.url)
        await worker.logs("generated", "slot=0")
        await proxy.down()  # wherever its transaction is
        await worker.logs("chain unreachable")
        await proxy.up()
        await worker.logs("submitted", "commitment=")
        reader = await stage.chain.ledger("owner")
        events = await reader.events(stage.chain.run, 0, (await reader.head()).number)
        await reader.close()
        for role in (worker, trainer):
            role.running.terminate()
            assert await role.end() == 1

    assert sum(isinstance(event, Submitted) for event in events) == 1
    assert worker.count("generated") == worker.count("submitted", "commitment=") == 1
