"""The record of a run on a real chain, whose endpoints lie or whose blocks are replaced."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
from aiohttp import web

from ledger.base import Version
from ledger.devnet import Anvil
from ledger.errors import Reorganised, Unreachable
from ledger.evm import EvmLedger
from node.reading import Reader
from node.record import Record
from tests.ledger.evm_scene import OTHER_ROOT, EvmScene, evm_scene
from tests.ledger.rpc_proxy import RpcProxy, ask, result


@pytest.fixture
async def scene() -> AsyncIterator[EvmScene]:
    async with Anvil(block_time=None) as anvil:
        yield await evm_scene(anvil)


async def forged(scene: EvmScene, request: dict) -> web.Response | None:
    """Says that the first version published was version 7."""
    if request["method"] != "eth_getLogs":
        return None
    logs = await ask(scene.anvil.rpc_url, "eth_getLogs", *request["params"])
    for log in logs:
        if len(log["topics"]) == 3 and log["topics"][2] == "0x" + bytes(32).hex():
            log["topics"][2] = f"0x{7:064x}"
    return result(request, logs)


async def test_a_lie_sends_the_reading_to_the_next_endpoint_and_stays_there(
    scene: EvmScene, caplog: pytest.LogCaptureFixture
) -> None:
    async with RpcProxy(scene.anvil.rpc_url, partial(forged, scene)) as liar, RpcProxy(scene.anvil.rpc_url) as honest:
        ledger = await EvmLedger.connect([liar.url, honest.url], scene.deployment, None, None)
        record = Record(await ledger.run(scene.run))
        liar.asked.clear()

        await Reader(ledger, record).sync()
        assert [made.version for made in record.checkpoints] == [0]
        assert [line.getMessage() for line in caplog.records if "cannot be" in line.getMessage()] == [
            f"{_label(liar)} gave an answer that cannot be: {_label(honest)} is asked instead"
        ]

        asked = len(liar.asked)
        await scene.anvil.mine()
        await Reader(ledger, record).sync()
        assert len(liar.asked) == asked
        await ledger.close()


async def test_a_lie_of_every_endpoint_is_said_with_what_to_do_and_the_truth_is_read_afterwards(
    scene: EvmScene,
) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as first, RpcProxy(scene.anvil.rpc_url) as second:
        for urls in ([first.url], [first.url, second.url]):
            ledger = await EvmLedger.connect(urls, scene.deployment, None, None)
            record = Record(await ledger.run(scene.run))
            first.rule = second.rule = partial(forged, scene)
            for _ in range(3):
                with pytest.raises(Unreachable, match=r"version=7.* cannot follow .*start again with another --rpc"):
                    await Reader(ledger, record).sync()
            first.rule = second.rule = nothing
            await Reader(ledger, record).sync()
            assert [made.version for made in record.checkpoints] == [0]
            await ledger.close()


async def nothing(_: dict) -> None:
    """Everything is passed on."""


async def test_blocks_replaced_deeper_than_the_confirmations_end_the_reading_with_what_to_do(scene: EvmScene) -> None:
    trainer = await scene.connect(scene.anvil.accounts[1])
    record = Record(await trainer.run(scene.run))
    await trainer.publish_checkpoint(scene.run, Version(1), OTHER_ROOT)
    await Reader(trainer, record).sync()
    assert record.latest == 1

    await scene.anvil.reorg(1)
    await scene.anvil.mine()
    for _ in range(2):
        with pytest.raises(Reorganised, match=r"has replaced block \d+, .* Start it again: it reads the chain anew"):
            await Reader(trainer, record).sync()

    anew = Record(record.run)
    await Reader(trainer, anew).sync()
    assert anew.latest == 0
    await trainer.close()


async def test_blocks_replaced_within_the_confirmations_go_unnoticed(scene: EvmScene) -> None:
    trainer = await scene.connect(scene.anvil.accounts[1])
    waiting = await scene.connect(scene.anvil.accounts[2], confirmations=2)
    record = Record(await waiting.run(scene.run))
    await trainer.publish_checkpoint(scene.run, Version(1), OTHER_ROOT)
    await Reader(waiting, record).sync()
    assert record.latest == 0

    await scene.anvil.reorg(2)
    for _ in range(3):
        await scene.anvil.mine()
        await Reader(waiting, record).sync()
    assert record.latest == 0
    await trainer.close()
    await waiting.close()


async def test_another_endpoint_is_followed_when_one_has_replaced_what_was_read(scene: EvmScene) -> None:
    """As one that follows a fork does."""
    forked = b""

    async def fork(request: dict) -> web.Response | None:
        if request["method"] != "eth_getBlockByNumber" or not forked:
            return None
        block = await ask(scene.anvil.rpc_url, request["method"], *request["params"])
        return result(request, block | {"hash": "0x" + forked.hex()})

    async with RpcProxy(scene.anvil.rpc_url, fork) as proxy:
        ledger = await EvmLedger.connect([proxy.url, scene.anvil.rpc_url], scene.deployment, None, None)
        record = Record(await ledger.run(scene.run))
        await Reader(ledger, record).sync()
        await scene.anvil.mine()
        forked = bytes(32)
        await Reader(ledger, record).sync()
        assert record.next_block == record.head.number + 1
        await ledger.close()


def _label(proxy: RpcProxy) -> str:
    return proxy.url.removeprefix("http://").partition("/")[0]
