"""How `EvmLedger` reads events from endpoints that lag, limit, leave out or invent."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pytest
from aiohttp import web
from eth_utils import keccak
from hexbytes import HexBytes
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import EndpointSet, Event, Version
from ledger.blocks import Headers
from ledger.devnet import CHAIN_ID
from ledger.endpoints import Endpoints
from ledger.errors import Unreachable
from ledger.events import RANGE_BLOCKS, EventReader, Span
from ledger.evm import EvmLedger
from ledger.interfaces import interface
from ledger.logs import read_log
from ledger.provider import MAX_ANSWER_BYTES
from ledger.translation import BadAnswer
from tests.ledger.evm_scene import OTHER_ROOT, EvmScene, reader
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


async def flood(request: dict) -> web.Response:
    return web.Response(body=b" " * (MAX_ANSWER_BYTES + 1))


async def stall(request: dict) -> web.Response:
    await asyncio.sleep(5)
    return result(request, [])


async def read_through(
    scene: EvmScene,
    widest: int,
    too_wide: Callable[[dict], Awaitable[web.Response]],
    first: int = 0,
    last: int | None = None,
) -> tuple[list[Event], list[int]]:
    """Events of an endpoint that answers `too_wide` to more than `widest` blocks, and how many were asked for."""
    spans: list[int] = []

    async def limited(request: dict) -> web.Response | None:
        if request["method"] != "eth_getLogs":
            return None
        (wanted,) = request["params"]
        spans.append(int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) + 1)
        return await too_wide(request) if spans[-1] > widest else None

    async with RpcProxy(scene.anvil.rpc_url, limited) as proxy:
        endpoints = Endpoints([proxy.url], CHAIN_ID, timeout_seconds=0.5)
        at = scene.deployment
        try:
            newest = int(await ask(scene.anvil.rpc_url, "eth_blockNumber"), 16)
            events = EventReader(endpoints, Headers(endpoints), at.coordinator, at.staking)
            return await events.read(scene.run, first, newest if last is None else last), spans
        finally:
            await endpoints.close()


@pytest.mark.parametrize(("widest", "too_wide"), [(6, flood), (6, stall)])
async def test_every_event_is_read_once_and_in_order_when_answers_of_wide_ranges_are_too_long_or_too_slow(
    scene: EvmScene, widest: int, too_wide: Callable[[dict], Awaitable[web.Response]]
) -> None:
    """Anybody can announce endpoints until the logs of any range are over what is read of an answer."""
    stranger = await scene.connect(scene.anvil.accounts[4])
    for number in range(12):
        await stranger.set_endpoint(f"http://stranger-{number}")
    last = (await stranger.head()).number
    honest = await stranger.events(scene.run, 0, last)
    await stranger.close()

    events, spans = await read_through(scene, widest, too_wide)

    assert events == honest
    announced = [event.url for event in events if isinstance(event, EndpointSet)]
    assert announced == [f"http://stranger-{number}" for number in range(12)]
    assert spans[0] == last + 1
    assert any(later > earlier for earlier, later in pairwise(spans))


@pytest.mark.parametrize("too_wide", [flood, stall])
async def test_a_block_whose_logs_are_too_much_for_one_answer_is_read_by_its_transactions_and_nothing_left_out(
    scene: EvmScene, too_wide: Callable[[dict], Awaitable[web.Response]]
) -> None:
    """For some 140 million gas anybody can fill 32 MiB with the endpoints announced in one block."""
    stranger, owner = await scene.connect(scene.anvil.accounts[4]), await scene.connect(scene.anvil.accounts[1])
    await ask(scene.anvil.rpc_url, "evm_setAutomine", False)
    announced = [asyncio.create_task(stranger.set_endpoint(f"http://stranger-{number}")) for number in range(10)]
    announced.append(asyncio.create_task(owner.publish_checkpoint(scene.run, Version(1), OTHER_ROOT)))

    async def pending() -> bool:
        return int((await ask(scene.anvil.rpc_url, "txpool_status"))["pending"], 16) == 11

    await wait_until(pending)
    await ask(scene.anvil.rpc_url, "evm_mine")
    await ask(scene.anvil.rpc_url, "evm_setAutomine", True)
    await asyncio.gather(*announced)
    last = (await stranger.head()).number
    honest = await stranger.events(scene.run, last, last)
    await stranger.close()
    await owner.close()

    events, spans = await read_through(scene, 0, too_wide, last, last)

    assert events == honest and spans == [1]
    assert sorted(type(event).__name__ for event in events) == ["CheckpointPublished", *["EndpointSet"] * 10]


async def test_a_receipt_that_is_missing_or_of_elsewhere_is_not_believed_of_a_block_read_by_its_transactions(
    scene: EvmScene,
) -> None:
    """One of a replaced block is refused whatever is in it: the logs that matter may be those which it lacks."""
    other = (await ask(scene.anvil.rpc_url, "eth_getBlockByNumber", "0x1", False))["transactions"][0]

    async def lie(request: dict, answer: object) -> web.Response | None:
        if request["method"] == "eth_getLogs":
            return await flood(request)
        return result(request, answer) if request["method"] == "eth_getTransactionReceipt" else None

    head = await ask(scene.anvil.rpc_url, "eth_getBlockByNumber", "latest", False)
    own = await ask(scene.anvil.rpc_url, "eth_getTransactionReceipt", head["transactions"][0])
    replaced = own | {"blockHash": "0x" + 32 * "ab", "logs": []}
    for answer in (None, await ask(scene.anvil.rpc_url, "eth_getTransactionReceipt", other), replaced):
        async with RpcProxy(scene.anvil.rpc_url) as liar:
            ledger = await reader(liar.url, scene.deployment)
            last = (await ledger.head()).number
            liar.rule = partial(lie, answer=answer)
            with pytest.raises(Unreachable, match=r"no receipt of|a receipt of another transaction|was replaced"):
                await ledger.events(scene.run, last, last)
            await ledger.close()


def test_a_span_falls_by_half_and_grows_by_an_eighth_up_to_what_it_was() -> None:
    span = Span(2000, 2000)
    span.narrow(2000)
    assert span.now == 1000
    grown = []
    for _ in range(7):
        span.widen()
        grown.append(span.now)
    assert grown == [1125, 1265, 1423, 1601, 1802, 2000, 2000]
    span.narrow(1)
    assert span.now == 1
    for _ in range(6):  # (9 / 8) ** 6 is 2.03
        assert span.now == 1
        span.widen()
    assert span.now == 2


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
