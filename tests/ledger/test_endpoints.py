"""JSON-RPC against endpoints that are down, wrong, slow, or lying."""

import asyncio
import json
from contextlib import suppress

import pytest
from aiohttp import web
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.blocks import COMPARE_SECONDS, STALLED_SECONDS, Headers
from ledger.devnet import CHAIN_ID, Anvil
from ledger.endpoints import ChainReplaced, Endpoints, Web3
from ledger.errors import InsufficientStake, InvalidEndpoint, Reverted, Unreachable, WrongChain
from ledger.provider import MAX_ANSWER_BYTES, Refused, result_of
from ledger.translation import BadAnswer
from tests.ledger.rpc_proxy import RpcProxy, ask, error, result

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "error", "result", "data", "x"]), inner),
)


async def _number(w3: Web3) -> int:
    return await w3.eth.block_number


async def test_an_answer_is_parsed_when_an_endpoint_gives_one(anvil: Anvil) -> None:
    endpoints = Endpoints([anvil.rpc_url], CHAIN_ID)
    assert await endpoints.ask(lambda w3: w3.eth.chain_id) == 31337
    await endpoints.close()


async def test_the_next_endpoint_answers_when_the_first_is_down(anvil: Anvil) -> None:
    async with RpcProxy(anvil.rpc_url) as first:
        endpoints = Endpoints([first.url, anvil.rpc_url], CHAIN_ID)
        assert await endpoints.ask(lambda w3: w3.eth.chain_id) == 31337
        await first.down()
        assert await endpoints.ask(lambda w3: w3.eth.chain_id) == 31337
        await endpoints.close()


async def test_the_next_endpoint_is_asked_when_the_answer_of_the_first_does_not_parse(anvil: Anvil) -> None:
    async def lie(request: dict) -> web.Response | None:
        return result(request, "0x_1") if request["method"] == "eth_blockNumber" else None

    async with RpcProxy(anvil.rpc_url, lie) as liar:
        endpoints = Endpoints([liar.url, anvil.rpc_url], CHAIN_ID)
        assert await endpoints.ask(_number) >= 0
        await endpoints.close()
        assert liar.asked == ["eth_chainId", "eth_blockNumber"]


async def test_an_endpoint_that_came_back_is_asked_for_its_chain_again(anvil: Anvil) -> None:
    async with RpcProxy(anvil.rpc_url) as proxy:
        endpoints = Endpoints([proxy.url], CHAIN_ID)
        await endpoints.ask(_number)
        await proxy.down()
        with pytest.raises(Unreachable):
            await endpoints.ask(_number)
        await proxy.up()
        await endpoints.ask(_number)
        await endpoints.close()
        assert proxy.asked == ["eth_chainId", "eth_blockNumber"] * 2


async def test_a_wrong_chain_is_refused_and_never_read(anvil: Anvil) -> None:
    endpoints = Endpoints([anvil.rpc_url], 84532)
    with pytest.raises(WrongChain, match="serves chain 31337, not 84532"):
        await endpoints.require_chain()
    with pytest.raises(Unreachable):
        await endpoints.ask(_number)
    await endpoints.close()


async def test_a_chain_that_was_started_anew_on_the_same_port_is_refused_and_not_read() -> None:
    async with Anvil(block_time=None) as first:
        port = int(first.rpc_url.rpartition(":")[2])
        await first.mine(3)
        known, quick = Endpoints([first.rpc_url], CHAIN_ID), Endpoints([first.rpc_url], CHAIN_ID)
        await known.keep_genesis()
        await quick.keep_genesis()
        headers = Headers(quick)
        assert (await headers.latest()).number == 3
    with pytest.raises(Unreachable):
        await known.ask(_number)  # it saw the outage; the other was idle

    await asyncio.sleep(1.1)  # a genesis block differs by its time, in seconds
    async with Anvil(block_time=None, port=port) as second, RpcProxy(second.rpc_url) as other:
        for _ in range(2):
            with pytest.raises(ChainReplaced, match=r"was started anew: .*--rpc, or deploy"):
                await known.ask(_number)
            with pytest.raises(WrongChain, match="was started anew"):
                await headers.latest()
        await known.close()
        await quick.close()
        fresh = Endpoints([other.url], CHAIN_ID)
        await fresh.keep_genesis()
        assert await fresh.ask(_number) == 0
        await fresh.close()


async def test_one_endpoint_of_another_beginning_does_not_stop_what_the_others_answer(anvil: Anvil) -> None:
    lying = False

    async def lie(request: dict) -> web.Response | None:
        if not lying or request["method"] != "eth_getBlockByNumber":
            return None
        block = await ask(anvil.rpc_url, request["method"], *request["params"])
        return result(request, block | {"hash": "0x" + "11" * 32})

    async with RpcProxy(anvil.rpc_url, lie) as liar:
        endpoints = Endpoints([liar.url, anvil.rpc_url], CHAIN_ID)
        await endpoints.keep_genesis()
        lying = True
        await liar.down()
        assert await endpoints.ask(_number) >= 0
        await liar.up()
        assert await endpoints.ask(_number) >= 0
        await endpoints.close()


async def test_the_secret_path_of_an_endpoint_is_in_no_message(anvil: Anvil) -> None:
    async with RpcProxy(anvil.rpc_url) as proxy:
        await proxy.down()
        endpoints = Endpoints([proxy.url], CHAIN_ID)
        with pytest.raises(Unreachable) as problem:
            await endpoints.ask(_number)
        await endpoints.close()
        assert "127.0.0.1" in str(problem.value)
        assert "secret" not in f"{problem.value!r} {problem.value.__cause__!r}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"id": 7, "result": "0x1"}',
        b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 1, "error": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": [], "data": {"data": {}}}}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"1" * 10_000,
    ],
)
async def test_nothing_is_known_when_the_answer_is_malformed(anvil: Anvil, body: bytes) -> None:
    async def lie(_: dict) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async with RpcProxy(anvil.rpc_url, lie) as liar:
        endpoints = Endpoints([liar.url], CHAIN_ID)
        with pytest.raises(Unreachable):
            await endpoints.ask(_number)
        await endpoints.close()


async def test_nothing_is_known_when_the_endpoint_is_slow_redirects_or_floods(anvil: Anvil) -> None:
    async def slow(_: dict) -> None:
        await asyncio.sleep(1)

    async def redirect(_: dict) -> web.Response:
        return web.Response(status=307, headers={"Location": anvil.rpc_url})

    async def flood(_: dict) -> web.Response:
        return web.Response(body=b" " * (MAX_ANSWER_BYTES + 1))

    for rule in (slow, redirect, flood):
        async with RpcProxy(anvil.rpc_url, rule) as proxy:
            endpoints = Endpoints([proxy.url], CHAIN_ID, timeout_seconds=0.5)
            with pytest.raises(Unreachable):
                await endpoints.ask(_number)
            await endpoints.close()


async def test_a_revert_is_not_asked_of_the_next_endpoint(anvil: Anvil) -> None:
    data = keccak(text="InsufficientStake(uint256,uint256)")[:4] + (7).to_bytes(32) + (5).to_bytes(32)

    async def refuse(request: dict) -> web.Response | None:
        return error(request, 3, "execution reverted", "0x" + data.hex()) if request["method"] == "eth_call" else None

    async with RpcProxy(anvil.rpc_url, refuse) as first, RpcProxy(anvil.rpc_url) as second:
        endpoints = Endpoints([first.url, second.url], CHAIN_ID)
        with pytest.raises(InsufficientStake) as reason:
            await endpoints.ask(lambda w3: w3.eth.call({}, "latest"))
        await endpoints.close()
        assert reason.value.values == {"wanted": 7, "available": 5}
        assert second.asked == []


async def test_no_url_that_an_endpoint_names_is_asked(anvil: Anvil) -> None:
    """EIP-3668: web3 would ask the URL in the revert data of `OffchainLookup` and call again with its answer."""
    kinds = ["address", "string[]", "bytes", "bytes4", "bytes"]
    sender = "0x00000000000000000000000000000000000000aa"

    async with RpcProxy(anvil.rpc_url) as victim:
        data = keccak(text=f"OffchainLookup({','.join(kinds)})")[:4]
        data += encode(kinds, [sender, [victim.url], b"", b"1234", b""])

        async def lure(request: dict) -> web.Response | None:
            if request["method"] != "eth_call":
                return None
            return error(request, 3, "execution reverted", "0x" + data.hex())

        async with RpcProxy(anvil.rpc_url, lure) as liar:
            endpoints = Endpoints([liar.url], CHAIN_ID)
            with pytest.raises(Reverted, match="UnknownError"):
                await endpoints.ask(lambda w3: w3.eth.call({}, "latest"))
            await endpoints.close()
        assert victim.asked == []


async def test_an_endpoint_whose_head_stands_still_is_left_for_one_that_goes_on_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Anvil(block_time=None) as anvil, RpcProxy(anvil.rpc_url) as frozen:
        block = await ask(anvil.rpc_url, "eth_getBlockByNumber", "latest", False)
        seconds = 0.0

        async def freeze(request: dict) -> web.Response | None:
            return result(request, block) if request["params"] == ["latest", False] else None

        frozen.rule = freeze
        endpoints = Endpoints([frozen.url, anvil.rpc_url], CHAIN_ID)
        headers = Headers(endpoints, confirmations=4, now=lambda: seconds)
        await anvil.mine(4)
        seconds += STALLED_SECONDS
        assert (await headers.latest()).number == 0  # no more than the confirmations behind
        await anvil.mine(1)
        assert (await headers.latest()).number == 0  # not compared again yet
        for _ in range(2):
            seconds += COMPARE_SECONDS
            assert (await headers.latest()).number == 5
        await frozen.down()  # and nobody is held up by an endpoint that is gone
        seconds += COMPARE_SECONDS
        assert (await headers.latest()).number == 5
        await endpoints.close()
    assert [record.getMessage().partition(" ")[2] for record in caplog.records if "behind" in record.getMessage()] == [
        f"is 5 blocks behind: {anvil.rpc_url.removeprefix('http://')} is asked instead"
    ]


async def test_a_refusal_is_told_when_no_endpoint_takes_the_request(anvil: Anvil) -> None:
    async def busy(request: dict) -> web.Response | None:
        return error(request, -32016, "over rate limit") if request["method"] == "eth_blockNumber" else None

    async with RpcProxy(anvil.rpc_url, busy) as first, RpcProxy(anvil.rpc_url, busy) as second:
        endpoints = Endpoints([first.url, second.url], CHAIN_ID)
        with pytest.raises(Refused, match="over rate limit"):
            await endpoints.ask(_number)
        await endpoints.close()
        assert "eth_blockNumber" in second.asked


async def test_a_closed_connection_is_unreachable(anvil: Anvil) -> None:
    endpoints = Endpoints([anvil.rpc_url], CHAIN_ID)
    await endpoints.ask(_number)
    await endpoints.close()
    with pytest.raises(Unreachable, match="closed"):
        await endpoints.ask(_number)


async def test_an_endpoint_is_an_http_url() -> None:
    for url in ("ws://127.0.0.1", "file:///etc/passwd", "127.0.0.1:8545", "http://", "http://[", "http://h:99999/key"):
        with pytest.raises(InvalidEndpoint, match="correct --rpc") as problem:
            Endpoints([url], CHAIN_ID)
        assert "key" not in str(problem.value)


@pytest.mark.parametrize("method", ["eth_blockNumber", "eth_getLogs", "eth_getBlockByNumber", "eth_sendRawTransaction"])
def test_nothing_is_known_when_a_method_that_runs_no_contract_is_said_to_have_reverted(method: str) -> None:
    data = "0x" + (keccak(text="InsufficientStake(uint256,uint256)")[:4] + bytes(64)).hex()
    answer = {"jsonrpc": "2.0", "id": 1, "error": {"code": 3, "message": "execution reverted", "data": data}}

    with pytest.raises(Refused, match="execution reverted"):
        result_of(answer, 1, method)
    for executing in ("eth_call", "eth_estimateGas"):
        with pytest.raises(InsufficientStake):
            result_of(answer, 1, executing)


@settings(deadline=None, max_examples=300)
@given(JSON, st.sampled_from(["eth_call", "eth_getLogs"]))
def test_any_json_is_an_answer_or_a_named_problem(answer: object, method: str) -> None:
    with suppress(BadAnswer, Refused, Reverted):
        result_of(json.loads(json.dumps(answer)), 1, method)
