"""Endpoints that lie, fall silent, or are another's, asked by the command line: one line, no secret, nothing lost."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ledger.provider import TIMEOUT_SECONDS
from tests.cli.chain import Chain
from tests.cli.command import Answer, command
from tests.ledger.rpc_proxy import RpcProxy, ask, error, result


async def shown(chain: Chain, url: str, home: Path, *more: str) -> Answer:
    """What `run show` makes of an endpoint."""
    return await asyncio.to_thread(
        command, "run", "show", "--run", str(chain.run), *chain.at(url), *more, "--json", home=home
    )


async def html(_: dict[str, Any]) -> web.Response:
    return web.Response(text="<html><body>maintenance secret-of-the-account</body></html>", content_type="text/html")


async def busy(_: dict[str, Any]) -> web.Response:
    return web.Response(status=429, text="Too Many Requests")


async def busy_in_json(request: dict[str, Any]) -> web.Response:
    return error(request, -32005, "daily request count exceeded, request rate limited")


async def reverting(request: dict[str, Any]) -> web.Response | None:
    return error(request, 3, "execution reverted") if request["method"] == "eth_call" else None


async def reverting_by_name(request: dict[str, Any]) -> web.Response | None:
    data = "0x4e487b71" + (17).to_bytes(32).hex()  # Panic(uint256), an overflow: no view of these contracts does
    return error(request, 3, "execution reverted", data) if request["method"] == "eth_call" else None


async def another_chain(request: dict[str, Any]) -> web.Response | None:
    return result(request, hex(84532)) if request["method"] == "eth_chainId" else None


async def no_code(request: dict[str, Any]) -> web.Response | None:
    return result(request, "0x") if request["method"] == "eth_getCode" else None


LIES = {
    "html": (html, 75, "HTTP 200 without JSON"),
    "busy": (busy, 75, "HTTP 429 without JSON"),
    "busy-json": (busy_in_json, 75, "request rate limited"),
    "revert": (reverting, 75, "these contracts never refuse without a reason"),
    "revert-by-name": (reverting_by_name, 75, "is said to have reverted, which it never does: Panic(code=17)"),
    "chain": (another_chain, 2, "serves chain 84532, not 31337, which the deployment is on: correct --rpc"),
    "no-code": (no_code, 2, "no contract stands at 0x"),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_bad_endpoint_is_said_and_does_not_matter_where_another_is_good(
    chain: Chain, tmp_path: Path, name: str
) -> None:
    rule, code, what = LIES[name]
    async with RpcProxy(chain.anvil.rpc_url, rule) as liar:
        alone = await shown(chain, liar.url, tmp_path)
        beside = await shown(chain, liar.url, tmp_path, "--rpc", chain.anvil.rpc_url)

    assert (alone.code, alone.out) == (code, "")
    assert alone.said.startswith("error: ") and what in alone.said
    if code == 75:  # another chain or no code is the user's to change, also among several
        assert beside.code == 0
        assert json.loads(beside.out)["run"] == chain.run


async def test_an_endpoint_with_another_specification_is_not_believed(chain: Chain, tmp_path: Path) -> None:
    async def lie(request: dict[str, Any]) -> web.Response | None:
        if request["method"] != "eth_getLogs":
            return None
        logs = await ask(chain.anvil.rpc_url, request["method"], *request["params"])
        text = b'"max_steps":1'.hex()
        return result(request, [log | {"data": log["data"].replace(text, b'"max_steps":2'.hex())} for log in logs])

    async with RpcProxy(chain.anvil.rpc_url, lie) as liar:
        alone = await shown(chain, liar.url, tmp_path)

    assert alone.code == 75
    assert f"specification of run {chain.run} has another digest than the contract's" in alone.said


async def test_a_block_from_the_future_is_refused_where_time_is_real(chain: Chain, tmp_path: Path) -> None:
    async def lie(request: dict[str, Any]) -> web.Response | None:
        if request["method"] == "web3_clientVersion":
            return result(request, "op-geth/v1")
        if request["method"] != "eth_getBlockByNumber" or request["params"][0] != "latest":
            return None
        block = await ask(chain.anvil.rpc_url, request["method"], *request["params"])
        return result(request, block | {"timestamp": hex(int(block["timestamp"], 16) + 10**6)})

    async with RpcProxy(chain.anvil.rpc_url, lie) as liar:
        answer = await shown(chain, liar.url, tmp_path)

    assert answer.code == 75
    assert "ahead of this machine's clock: one is wrong" in answer.said


@pytest.mark.slow
async def test_an_endpoint_that_never_answers_is_given_up(chain: Chain, tmp_path: Path) -> None:
    async def silent(_: dict[str, Any]) -> None:
        await asyncio.sleep(3 * TIMEOUT_SECONDS)

    async with RpcProxy(chain.anvil.rpc_url, silent) as proxy:
        began = asyncio.get_running_loop().time()
        alone = await shown(chain, proxy.url, tmp_path)
        seconds = asyncio.get_running_loop().time() - began

    assert alone.code == 75
    assert seconds < 3 * TIMEOUT_SECONDS


async def test_an_endpoint_that_takes_its_time_is_waited_for(chain: Chain, tmp_path: Path) -> None:
    async def slow(_: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)

    async with RpcProxy(chain.anvil.rpc_url, slow) as proxy:
        assert (await shown(chain, proxy.url, tmp_path)).code == 0


async def test_a_payment_is_not_made_twice_when_the_endpoint_dies_while_it_is_sent(
    chain: Chain, tmp_path: Path
) -> None:
    """The transaction arrives, its answer does not; the next command follows it."""
    proxy = RpcProxy(chain.anvil.rpc_url)
    wallet = ("--wallet", str(chain.wallets["worker"]))
    refused: list[str] = []

    async def cut(request: dict[str, Any]) -> web.Response | None:
        if request["method"] != "eth_sendRawTransaction":
            return None
        await ask(chain.anvil.rpc_url, request["method"], *request["params"])
        proxy.rule = refuse
        return web.Response(status=502, text="")

    async def refuse(request: dict[str, Any]) -> web.Response:
        refused.append(request["method"])
        return web.Response(status=502, text="")

    before = await asyncio.to_thread(command, "stake", "show", *wallet, *chain.at(), "--json", home=tmp_path)
    async with proxy:
        proxy.rule = cut
        sent = asyncio.create_task(
            asyncio.to_thread(
                command, "faucet", *wallet, "--amount", "5", *chain.at(proxy.url), "--json", home=tmp_path
            )
        )
        while not refused:  # until the command has looked for what it sent, and was blind
            assert not sent.done()
            await asyncio.sleep(0.01)
        proxy.rule = back
        answer = await sent

    assert answer.code == 0
    assert int(json.loads(answer.out)["tokens"]) == int(json.loads(before.out)["tokens"]) + 5 * 10**18


async def back(_: dict[str, Any]) -> None:
    """Asks anvil again."""
