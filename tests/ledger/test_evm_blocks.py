"""How `EvmLedger` finds blocks by time, and both kinds of beacons."""

from dataclasses import replace

import pytest
from aiohttp import web
from eth_utils import keccak

from ledger.base import Digest
from ledger.beacons import L1_BLOCK
from ledger.devnet import Anvil
from ledger.errors import Unreachable
from tests.ledger.evm_scene import EvmScene, reader
from tests.ledger.rpc_proxy import RpcProxy, ask, result


async def _headers(anvil: Anvil, last: int) -> list[tuple[int, bytes]]:
    """(time, mixHash) of blocks 0 to `last`, without the code under test."""
    found = []
    for number in range(last + 1):
        block = await ask(anvil.rpc_url, "eth_getBlockByNumber", hex(number), False)
        found.append((int(block["timestamp"], 16), bytes.fromhex(block["mixHash"][2:])))
    return found


async def test_the_first_block_at_any_time_is_found(scene: EvmScene) -> None:
    for count, interval in ((40, 2), (3, 100), (30, 1)):
        await ask(scene.anvil.rpc_url, "anvil_mine", hex(count), hex(interval))
    ledger = await reader(scene.anvil.rpc_url, scene.deployment)
    last = (await ledger.head()).number
    times = [time for time, _ in await _headers(scene.anvil, last)]

    for wanted in sorted({0, *times, *(time + 1 for time in times)}):
        expected = next((number for number, time in enumerate(times) if time >= wanted), None)
        found = await ledger.block_at(wanted)
        assert (None if found is None else found.number) == expected
    await ledger.close()


async def test_a_devnet_beacon_is_the_hash_of_the_second_mix_after_it_once_confirmed(scene: EvmScene) -> None:
    deployment = replace(scene.deployment, confirmations=3)
    ledger = await reader(scene.anvil.rpc_url, deployment)
    number = (await ledger.head()).number

    for _ in range(4):
        await scene.anvil.mine()
    assert await ledger.beacon(number) is None
    await scene.anvil.mine()

    mixes = await _headers(scene.anvil, number + 2)
    assert await ledger.beacon(number) == keccak(mixes[number + 2][1])
    await ledger.close()


async def test_an_op_stack_beacon_is_the_mix_of_the_first_block_with_an_origin_24_seconds_later(
    scene: EvmScene,
) -> None:
    """L1Block answers 12 * floor((now - 4) / 12): a slot of L1 every 12 s, seen at least 4 s late."""
    code = "0x600c600c600442030402" + "5f5260205ff3"
    await ask(scene.anvil.rpc_url, "anvil_setCode", L1_BLOCK, code)
    await ask(scene.anvil.rpc_url, "anvil_mine", hex(60), hex(2))

    async def op_geth(request: dict) -> web.Response | None:
        return result(request, "Geth/v1.101") if request["method"] == "web3_clientVersion" else None

    async with RpcProxy(scene.anvil.rpc_url, op_geth) as proxy:
        ledger = await reader(proxy.url, scene.deployment)
        last = (await ledger.head()).number
        headers = await _headers(scene.anvil, last)
        for number in range(last - 59, last + 1):
            origins = ((time - 4) // 12 * 12 for time, _ in headers)
            late = [i for i, origin in enumerate(origins) if i > number and origin >= headers[number][0] + 24]
            expected = Digest(headers[late[0]][1]) if late else None
            assert await ledger.beacon(number) == expected
        assert late == []
        await ledger.close()


async def test_a_block_from_the_future_is_not_believed_on_a_chain_whose_time_nobody_sets(scene: EvmScene) -> None:
    ahead = 0

    async def op_geth(request: dict) -> web.Response | None:
        if request["method"] == "web3_clientVersion":
            return result(request, "Geth/v1.101")
        if request["method"] != "eth_getBlockByNumber" or not ahead:
            return None
        block = await ask(scene.anvil.rpc_url, request["method"], *request["params"])
        return result(request, block | {"timestamp": hex(int(block["timestamp"], 16) + ahead)})

    async with RpcProxy(scene.anvil.rpc_url, op_geth) as proxy:
        ledger = await reader(proxy.url, scene.deployment)
        true = await ledger.head()
        ahead = 3000  # a clock may be off by that
        assert (await ledger.head()).time == true.time + 3000
        ahead = 100_000
        with pytest.raises(Unreachable, match="ahead of this machine's clock"):
            await ledger.head()
        ahead = 0
        assert await ledger.head() == true
        await ledger.close()

    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        await ask(proxy.url, "evm_increaseTime", 100_000)
        await ask(proxy.url, "evm_mine")
        devnet = await reader(proxy.url, scene.deployment)
        assert (await devnet.head()).time >= true.time + 100_000
        await devnet.close()
