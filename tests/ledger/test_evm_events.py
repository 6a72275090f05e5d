"""How `EvmLedger` reads events from endpoints that lag, limit, leave out or invent."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from aiohttp import web
from eth_utils import keccak
from hexbytes import HexBytes
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import Unreachable
from ledger.events import RANGE_BLOCKS, read_log
from ledger.evm import EvmLedger
from ledger.interfaces import interface
from ledger.translation import BadAnswer
from tests.ledger.evm_scene import EvmScene, reader
from tests.ledger.rpc_proxy import RpcProxy, ask, error, result, wait_until


async def test_an_endpoint_that_lags_does_not_hide_events(scene: EvmScene) -> None:
    """The first endpoint stops following the chain; its answer would be an empty list."""
    async with RpcProxy(scene.anvil.rpc_url) as lagging:
        ledger = await EvmLedger.connect([lagging.url, scene.anvil.rpc_url], scene.deployment, None, None)
        last = (await ledger.head()).number

        async def lag(request: dict) -> web.Response | None:
            if request["method"] == "eth_getLogs":
                return result(request, [])
            if request["method"] == "eth_getBlockByNumber" and request["params"][0] == hex(last):
                return result(request, None)
            return None

        lagging.rule = lag
        events = await ledger.events(scene.run, 0, last)
        assert [type(event).__name__ for event in events] == ["CheckpointPublished", "Allocated"]
        await ledger.close()


async def test_ranges_are_bounded_and_halved_where_the_endpoint_refuses_them(scene: EvmScene) -> None:
    spans: list[int] = []

    async def refuse(request: dict) -> web.Response | None:
        if request["method"] != "eth_getLogs":
            return None
        (wanted,) = request["params"]
        spans.append(int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) + 1)
        return error(request, -32005, "query returned more than 10000 results") if spans[-1] > 4 else None

    async with RpcProxy(scene.anvil.rpc_url, refuse) as proxy:
        ledger = await reader(proxy.url, scene.deployment)
        last = (await ledger.head()).number
        events = await ledger.events(scene.run, 0, last + 10 * RANGE_BLOCKS)
        assert [type(event).__name__ for event in events] == ["CheckpointPublished", "Allocated"]
        assert max(spans) == last + 1
        await ledger.close()


async def test_an_endpoint_url_that_is_not_utf8_does_not_stop_the_reading(scene: EvmScene) -> None:
    """Solidity takes any bytes for a string; anybody may send them."""
    ledger = await scene.connect(scene.anvil.accounts[1])
    url = b"http://\xff\xfe"
    data = keccak(text="setEndpoint(string)")[:4] + (32).to_bytes(32) + len(url).to_bytes(32) + url.ljust(32, b"\0")
    call = {"from": scene.anvil.accounts[4].address, "to": ledger.coordinator, "data": "0x" + data.hex()}
    sent = await ask(scene.anvil.rpc_url, "eth_sendTransaction", call)

    async def mined() -> bool:
        return await ask(scene.anvil.rpc_url, "eth_getTransactionReceipt", sent) is not None

    await wait_until(mined)
    head = (await ledger.head()).number
    (event,) = await ledger.events(scene.run, head, head)

    assert (event.who, event.url) == (scene.anvil.accounts[4].address, "http://\ufffd\ufffd")
    await ledger.close()


async def test_times_are_read_from_headers_where_logs_do_not_tell_them(scene: EvmScene) -> None:
    async def strip(request: dict) -> web.Response | None:
        if request["method"] != "eth_getLogs":
            return None
        logs = await ask(scene.anvil.rpc_url, "eth_getLogs", *request["params"])
        return result(request, [{key: log[key] for key in log if key != "blockTimestamp"} for log in logs])

    plain = await reader(scene.anvil.rpc_url, scene.deployment)
    async with RpcProxy(scene.anvil.rpc_url, strip) as proxy:
        stripped = await reader(proxy.url, scene.deployment)
        last = (await plain.head()).number
        assert await stripped.events(scene.run, 0, last) == await plain.events(scene.run, 0, last)
        await stripped.close()
    await plain.close()


async def test_a_log_that_was_not_asked_for_is_not_believed(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as liar:
        ledger = await reader(liar.url, scene.deployment)
        last = (await ledger.head()).number
        changes = {
            "topics": lambda topics: [topics[0], *("0x" + bytes(31).hex() + "07" for _ in topics[1:])],
            "address": lambda _: scene.deployment.token.lower(),
            "blockNumber": lambda _: hex(last + 1),
            "data": lambda data: data + "00",
        }

        for field, change in changes.items():

            async def forge(request: dict, field: str = field, change: Callable = change) -> web.Response | None:
                if request["method"] != "eth_getLogs":
                    return None
                logs = await ask(scene.anvil.rpc_url, "eth_getLogs", *request["params"])
                return result(request, [{**log, field: change(log[field])} for log in logs])

            liar.rule = forge
            if field == "data":  # what follows the operands means nothing: Solidity's decoder skips it too
                assert len(await ledger.events(scene.run, 0, last)) == 2
            else:
                with pytest.raises(Unreachable, match="not asked for"):
                    await ledger.events(scene.run, 0, last)
        await ledger.close()


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(min_size=32, max_size=32), max_size=3), st.binary(max_size=200), st.data())
def test_any_log_is_an_event_or_a_bad_answer(operands: list[bytes], content: bytes, data: st.DataObject) -> None:
    coordinator = interface("RunCoordinator")
    event = data.draw(st.sampled_from(["Submitted", "EndpointSet", "RunCreated", "RunEnded", "Claimed"]))
    log = {
        "address": "0x" + bytes(20).hex(),
        "topics": [HexBytes(coordinator.topic(event)), *map(HexBytes, operands)],
        "data": HexBytes(content),
        "blockNumber": 1,
        "blockHash": HexBytes(bytes(32)),
        "logIndex": 0,
        "transactionIndex": 0,
        "transactionHash": HexBytes(bytes(32)),
    }
    with suppress(BadAnswer):
        read = read_log(log)
        assert read is not None and read.event == event
