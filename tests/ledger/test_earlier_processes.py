"""What an earlier process sent and did not see through, as the next one finds it in the journal."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from ledger.errors import Unconfirmed
from ledger.following import Patience
from ledger.journal import Stage
from tests.ledger.evm_scene import TO, EvmScene, entries
from tests.ledger.rpc_proxy import RpcProxy, ask, result, wait_until


async def test_a_transaction_that_nobody_mines_is_unconfirmed_and_taken_up_by_the_next_start(
    scene: EvmScene, tmp_path: Path
) -> None:
    await ask(scene.anvil.rpc_url, "evm_setAutomine", False)
    patience = Patience(poll=0.02, resend=0.1, timeout=0.5)
    ledger = await scene.connect(scene.node, tmp_path / "journal", patience=patience)
    with pytest.raises(Unconfirmed):
        await ledger.transfer_native(TO, 7)
    await ledger.close()

    again = await scene.connect(scene.node, tmp_path / "journal")
    await scene.anvil.mine()

    async def followed() -> bool:
        return [stage for _, stage, _ in entries(tmp_path / "journal")] == [Stage.MINED]

    await wait_until(followed)
    assert await again.native_balance(TO) == 7
    await again.close()


async def test_what_an_earlier_process_sent_counts_once_it_was_waited_for(scene: EvmScene, tmp_path: Path) -> None:
    await ask(scene.anvil.rpc_url, "evm_setAutomine", False)
    killed = await scene.connect(scene.node, tmp_path / "journal", patience=Patience(poll=0.02, timeout=0.2))
    with pytest.raises(Unconfirmed):
        await killed.transfer_native(TO, 7)
    await killed.close()

    again = await scene.connect(scene.node, tmp_path / "journal")
    waiting = asyncio.create_task(again.finish_earlier())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await scene.anvil.mine()
    await waiting

    assert await again.native_balance(TO) == 7
    assert await again.finish_earlier() == (await again.head()).number
    await again.close()


async def test_the_block_by_which_all_counts_is_that_of_the_last_transaction_that_an_earlier_process_saw_mined(
    scene: EvmScene, tmp_path: Path
) -> None:
    """The endpoint lags behind by that transaction at first."""
    killed = await scene.connect(scene.node, tmp_path / "journal")
    assert await killed.finish_earlier() == 0
    await killed.transfer_native(TO, 7)
    before = await killed.head()
    last = (await killed.transfer_native(TO, 8)).block
    await killed.close()
    await scene.anvil.mine(3)
    lagging = [True]

    async def behind(request: dict) -> web.Response | None:
        if lagging[0] and request["method"] == "eth_getTransactionReceipt":
            return result(request, None)
        if lagging[0] and request["method"] == "eth_getTransactionCount":
            return result(request, "0x1")
        return None

    async with RpcProxy(scene.anvil.rpc_url, behind) as proxy:
        again = await scene.connect(scene.node, tmp_path / "journal", proxy.url)
        waiting = asyncio.create_task(again.finish_earlier())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        lagging[0] = False

        assert last.number == before.number + 1
        assert await waiting == last.number
        await again.close()


async def test_a_receipt_that_the_endpoints_have_forgotten_is_not_waited_for(scene: EvmScene, tmp_path: Path) -> None:
    killed = await scene.connect(scene.node, tmp_path / "journal")
    await killed.transfer_native(TO, 7)
    await killed.close()

    async def pruned(request: dict) -> web.Response | None:
        return result(request, None) if request["method"] == "eth_getTransactionReceipt" else None

    async with RpcProxy(scene.anvil.rpc_url, pruned) as proxy:
        again = await scene.connect(scene.node, tmp_path / "journal", proxy.url)
        assert await again.finish_earlier() == (await again.head()).number
        await again.close()


async def test_what_an_earlier_process_sent_is_unconfirmed_when_it_does_not_end_in_time(
    scene: EvmScene, tmp_path: Path
) -> None:
    await ask(scene.anvil.rpc_url, "evm_setAutomine", False)
    impatient = Patience(poll=0.02, timeout=0.2)
    for attempt in (1, 2):
        ledger = await scene.connect(scene.node, tmp_path / "journal", patience=impatient)
        if attempt == 1:
            with pytest.raises(Unconfirmed):
                await ledger.transfer_native(TO, 7)
        else:
            with pytest.raises(Unconfirmed, match="transfer"):
                await ledger.finish_earlier()
        await ledger.close()


async def test_a_nonce_that_another_transaction_took_is_not_waited_for(scene: EvmScene, tmp_path: Path) -> None:
    """The journal holds a transfer of nonce 0 that never left; the key's nonce 0 was used elsewhere meanwhile."""

    async def swallow(request: dict) -> web.Response | None:
        return web.Response(status=502) if request["method"] == "eth_sendRawTransaction" else None

    async with RpcProxy(scene.anvil.rpc_url, swallow) as proxy:
        impatient = Patience(poll=0.02, timeout=0.1)
        ledger = await scene.connect(scene.node, tmp_path / "journal", proxy.url, patience=impatient)
        with pytest.raises(Unconfirmed):
            await ledger.transfer_native(TO, 7)
        await ledger.close()
    elsewhere = await scene.connect(scene.node)
    await elsewhere.transfer_native(TO, 1)
    await elsewhere.close()

    again = await scene.connect(scene.node, tmp_path / "journal")

    async def given_up() -> bool:
        return [stage for _, stage, _ in entries(tmp_path / "journal")] == [Stage.LOST]

    await wait_until(given_up)
    await again.transfer_native(TO, 2)
    assert await again.native_balance(TO) == 3
    await again.close()
