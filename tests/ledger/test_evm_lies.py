"""`EvmLedger` and endpoints that lie or refuse: a named error, never a wrong answer."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web

from ledger.base import RunId, Version
from ledger.errors import LedgerError, Unreachable
from ledger.evm import EvmLedger
from tests.ledger.evm_scene import ROOT, EvmScene, reader
from tests.ledger.rpc_proxy import RpcProxy, ask, error, result

JUNK: list[object] = [
    None, True, 0, -1, 1.5, "", "0x", "0x0", "0x" + "f" * 65, "0x" + "ff" * 31, "0x" + "ff" * 32, "0x" + "ff" * 4096,
    [], [None], [[]], [{}], {}, {"number": "0x1"}, "zzz", [{"address": 1, "topics": [1], "data": "0x0"}],
    "0x" + (32).to_bytes(32).hex() + (2**255).to_bytes(32).hex(),
]  # fmt: skip

Read = Callable[[EvmLedger], Awaitable[object]]

READS: dict[str, Read] = {
    "head": lambda ledger: ledger.head(),
    "block_at": lambda ledger: ledger.block_at(2_000_000_000),
    "beacon": lambda ledger: ledger.beacon(1),
    "native_balance": lambda ledger: ledger.native_balance(ledger.account),
    "token_balance": lambda ledger: ledger.token_balance(ledger.account),
    "run": lambda ledger: ledger.run(RunId(1)),
    "run_count": lambda ledger: ledger.run_count(),
    "run_state": lambda ledger: ledger.run_state(RunId(1)),
    "submission": lambda ledger: ledger.submission(RunId(1), ROOT),
    "events": lambda ledger: ledger.events(RunId(1), 0, 5),
    "allocation": lambda ledger: ledger.allocation(RunId(1), ledger.account),
    "provider_of": lambda ledger: ledger.provider_of(ledger.account),
    "faucet": lambda ledger: ledger.faucet(1),
    "publish_checkpoint": lambda ledger: ledger.publish_checkpoint(RunId(1), Version(0), ROOT),
}


@pytest.mark.parametrize("junk", JUNK, ids=lambda value: repr(value)[:24])
async def test_a_lie_is_never_more_than_a_named_error(scene: EvmScene, junk: object) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as liar:
        ledger = await scene.connect(scene.anvil.accounts[1], url=liar.url)

        async def lie(request: dict) -> web.Response | None:
            return None if request["method"] == "eth_chainId" else result(request, junk)

        liar.rule = lie
        for read in READS.values():
            with suppress(LedgerError):
                await read(ledger)
        await ledger.close()


async def test_a_refusal_of_every_request_is_unreachable(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        ledger = await scene.connect(scene.anvil.accounts[1], url=proxy.url)

        async def refuse(request: dict) -> web.Response:
            return error(request, -32005, "limit exceeded")

        proxy.rule = refuse
        for name, read in READS.items():
            with pytest.raises(Unreachable):
                await read(ledger)
                pytest.fail(name)
        await ledger.close()


async def test_another_specification_than_the_contracts_is_not_believed(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as liar:
        ledger = await reader(liar.url, scene.deployment)
        honest = await ledger.run(scene.run)

        async def forge(request: dict) -> web.Response | None:
            if request["method"] != "eth_getLogs":
                return None
            logs = await ask(scene.anvil.rpc_url, "eth_getLogs", *request["params"])
            for log in logs:
                log["data"] = log["data"].replace(honest.spec.hex(), b'{"name":"lie"}'.hex())
            return result(request, logs)

        liar.rule = forge
        fresh = await reader(liar.url, scene.deployment)
        with pytest.raises(Unreachable, match="another digest"):
            await fresh.run(scene.run)
        await fresh.close()
        await ledger.close()
