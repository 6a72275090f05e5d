"""A refusal that could end a role is believed only when it is said again: once is a node that lags, or a lie."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from eth_utils.crypto import keccak

from ledger.base import Version
from ledger.errors import NodeNotAuthorized, SlotMismatch, UnknownRun
from ledger.evm import EvmLedger
from ledger.following import Patience
from tests.ledger.evm_scene import BEACON, ROOT, SPEC, UNITS, EvmScene
from tests.ledger.rpc_proxy import RpcProxy, error, result

QUICK = Patience(poll=0.02, resend=0.2)


def refusal(signature: str, *operands: int) -> str:
    return "0x" + keccak(text=signature)[:4].hex() + "".join(f"{operand:064x}" for operand in operands)


UNAUTHORISED = refusal("NodeNotAuthorized(address)", 5)
NO_RUN = refusal("UnknownRun(uint256)", 1)
OTHER_SLOT = refusal("SlotMismatch(uint64,uint64)", 1, 0)


@dataclass
class Lagging:
    """A rule that gives `answer` to a method the first `times`."""

    method: str
    answer: Callable[[dict[str, Any]], web.Response]
    times: int = 1
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, request: dict[str, Any]) -> web.Response | None:
        if request["method"] != self.method:
            return None
        self.asked.append(request)
        return self.answer(request) if len(self.asked) <= self.times else None


def refusing(data: str, times: int = 1) -> Lagging:
    return Lagging("eth_call", lambda request: error(request, 3, "execution reverted", data), times)


async def submit(ledger: EvmLedger, scene: EvmScene) -> int:
    """The slot after it."""
    await ledger.submit(scene.run, Version(0), 0, ROOT, UNITS, BEACON)
    return await ledger.slot(scene.run, Version(0), scene.node.address)


@pytest.mark.parametrize(
    "rule",
    [
        refusing(UNAUTHORISED),
        refusing(NO_RUN),
        refusing(refusal("Nonsense()")),
        refusing(refusal("InsufficientStake(uint256,uint256)", 7, 5)),
        Lagging("eth_getBalance", lambda request: result(request, "0x0")),
    ],
    ids=["before it was authorised", "before the run", "of no contract", "made up", "before it had coins"],
)
async def test_one_answer_of_a_node_that_lags_does_not_keep_a_submission_from_the_chain(
    scene: EvmScene, rule: Lagging
) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        ledger = await scene.connect(scene.node, url=proxy.url, patience=QUICK)
        proxy.rule = rule
        assert await submit(ledger, scene) == 1
        assert len(rule.asked) >= 2
        await ledger.close()


async def test_one_answer_that_there_is_no_run_is_asked_for_again(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        ledger = await scene.connect(scene.node, url=proxy.url, patience=QUICK)
        proxy.rule = refusing(NO_RUN)
        assert (await ledger.run(scene.run)).spec == SPEC
        proxy.rule = refusing(NO_RUN, times=2)
        with pytest.raises(UnknownRun):
            await ledger.run_state(scene.run)
        await ledger.close()


async def test_a_refusal_that_one_endpoint_repeats_is_asked_of_the_other(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as liar:
        urls = [liar.url, scene.anvil.rpc_url]
        ledger = await EvmLedger.connect(urls, scene.deployment, scene.node, None, QUICK)
        liar.rule = refusing(UNAUTHORISED, times=1_000)
        assert await submit(ledger, scene) == 1
        await ledger.close()


async def test_a_refusal_that_is_said_again_is_believed_and_one_that_passes_at_once(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        ledger = await scene.connect(scene.node, url=proxy.url, patience=QUICK)
        for data, kind, times in ((UNAUTHORISED, NodeNotAuthorized, 2), (OTHER_SLOT, SlotMismatch, 1)):
            proxy.rule = rule = refusing(data, times)
            with pytest.raises(kind):
                await submit(ledger, scene)
            assert len(rule.asked) == times
        await ledger.close()
