"""Transactions against real chains that drop, delay, reorder and kill."""

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from eth_utils.crypto import keccak

from ledger.base import State, Version
from ledger.commitments import commitment
from ledger.devnet import Anvil
from ledger.errors import AlreadySubmitted, InsufficientStake, Reverted, SlotMismatch, Unconfirmed, Unreachable
from ledger.evm import EvmLedger
from ledger.following import Patience
from ledger.journal import Journal, SlotTaken, Stage
from tests.ledger.evm_scene import BEACON, OTHER_ROOT, ROOT, STAKE, TO, UNITS, EvmScene, entries
from tests.ledger.rpc_proxy import RpcProxy, ask, result, wait_until


async def _tell(anvil: Anvil, method: str, *parameters: object) -> Any:
    return await ask(anvil.rpc_url, method, *parameters)


async def _mine_every_second(anvil: Anvil) -> None:
    await _tell(anvil, "evm_setAutomine", False)
    await _tell(anvil, "evm_setIntervalMining", 1)


async def _nonce_of(anvil: Anvil, transaction: bytes) -> int:
    found = await _tell(anvil, "eth_getTransactionByHash", "0x" + transaction.hex())
    return int(found["nonce"], 16)


async def _sent_by(anvil: Anvil, who: str) -> int:
    return int(await _tell(anvil, "eth_getTransactionCount", who, "latest"), 16)


async def _submit(ledger: EvmLedger, scene: EvmScene, root: bytes = ROOT) -> object:
    return await ledger.submit(scene.run, Version(0), 0, root, UNITS, BEACON)


def _commitment(scene: EvmScene) -> bytes:
    d = scene.deployment
    return commitment(d.chain_id, d.coordinator, scene.run, scene.node.address, 0, 0, ROOT, UNITS, BEACON)


# --- The ordinary way


async def test_parallel_writes_of_one_key_take_consecutive_nonces(scene: EvmScene, tmp_path: Path) -> None:
    await _mine_every_second(scene.anvil)
    ledger = await scene.connect(scene.node, tmp_path / "journal")

    receipts = await asyncio.gather(*(ledger.transfer_native(TO, wei) for wei in (1, 2, 3)))

    assert sorted([await _nonce_of(scene.anvil, receipt.transaction) for receipt in receipts]) == [0, 1, 2]
    assert await ledger.native_balance(TO) == 6
    await ledger.close()


async def test_two_processes_with_one_key_both_get_through(scene: EvmScene) -> None:
    await _tell(scene.anvil, "evm_setAutomine", False)
    first, second = await scene.connect(scene.node), await scene.connect(scene.node)

    writes = [
        asyncio.create_task(ledger.transfer_native(TO, wei))
        for ledger, amounts in ((first, (1, 2, 4)), (second, (8, 16, 32)))
        for wei in amounts
    ]

    async def pooled() -> bool:
        await scene.anvil.mine()
        return all(write.done() for write in writes)

    await wait_until(pooled)
    assert {(await write).gas_used for write in writes} == {21_000}
    assert await first.native_balance(TO) == 63
    await first.close()
    await second.close()


async def test_a_call_that_would_revert_is_not_signed(scene: EvmScene, tmp_path: Path) -> None:
    ledger = await scene.connect(scene.anvil.accounts[2], tmp_path / "journal")

    with pytest.raises(InsufficientStake) as reason:
        await ledger.unstake(scene.run, scene.node.address, STAKE + 1)

    assert reason.value.values == {"wanted": STAKE + 1, "available": STAKE}
    await ledger.close()
    assert entries(tmp_path / "journal") == []


async def test_a_mined_failure_is_told_by_name_and_values(scene: EvmScene, tmp_path: Path) -> None:
    async def hide(request: dict) -> web.Response | None:
        if request["method"] == "eth_estimateGas":
            return result(request, hex(200_000))
        if request["method"] == "eth_call" and request["params"][1] == "latest" and "from" in request["params"][0]:
            return result(request, "0x")
        return None

    async with RpcProxy(scene.anvil.rpc_url, hide) as proxy:
        ledger = await scene.connect(scene.anvil.accounts[2], tmp_path / "journal", proxy.url)
        with pytest.raises(InsufficientStake) as reason:
            await ledger.unstake(scene.run, scene.node.address, STAKE + 7)
        await ledger.close()

    assert reason.value.values == {"wanted": STAKE + 7, "available": STAKE}
    assert [(what, stage) for what, stage, _ in entries(tmp_path / "journal")] == [("unstake", Stage.REVERTED)]


async def test_an_account_that_cannot_pay_is_told_so(scene: EvmScene) -> None:
    await scene.anvil.fund(scene.node.address, 1000)
    ledger = await scene.connect(scene.node)

    with pytest.raises(Reverted) as reason:
        await _submit(ledger, scene)

    assert reason.value.name == "InsufficientNativeBalance"
    assert (reason.value.values["account"], reason.value.values["balance"]) == (scene.node.address, 1000)
    needed = reason.value.values["needed"]
    assert f"{scene.node.address} holds 1000 wei and needs {needed} wei" in str(reason.value)
    await ledger.close()


# --- Trouble on the way


async def test_nothing_is_sent_when_the_endpoint_is_gone_and_all_is_well_when_it_is_back(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:
        ledger = await scene.connect(scene.node, url=proxy.url)
        await proxy.down()
        with pytest.raises(Unreachable):
            await ledger.transfer_native(TO, 5)
        with pytest.raises(Unreachable):
            await ledger.head()

        await proxy.up()

        await ledger.transfer_native(TO, 7)
        assert await ledger.native_balance(TO) == 7
        await ledger.close()


async def test_a_transaction_lands_once_when_the_endpoint_fails_while_it_is_sent(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as proxy:

        async def fail(request: dict) -> web.Response | None:
            if request["method"] == "eth_sendRawTransaction" and proxy.asked.count("eth_sendRawTransaction") < 3:
                return web.Response(status=502)
            return None

        proxy.rule = fail
        ledger = await scene.connect(scene.node, url=proxy.url)
        await ledger.transfer_native(TO, 7)
        assert await ledger.native_balance(TO) == 7
        assert await _sent_by(scene.anvil, scene.node.address) == 1
        await ledger.close()


async def test_a_transaction_that_a_reorg_dropped_is_sent_again(scene: EvmScene, tmp_path: Path) -> None:
    ledger = await scene.connect(scene.node, tmp_path / "journal", confirmations=2)
    write = asyncio.create_task(ledger.transfer_native(TO, 7))

    async def mined() -> bool:
        return await _sent_by(scene.anvil, scene.node.address) == 1

    await wait_until(mined)
    await scene.anvil.reorg(1)
    assert await _sent_by(scene.anvil, scene.node.address) == 0
    await wait_until(mined)
    await scene.anvil.mine(2)

    receipt = await write
    assert await ledger.native_balance(TO) == 7
    assert (await ledger.head()).number == receipt.block.number + 2
    await ledger.close()


@pytest.mark.parametrize("receipts", [True, False], ids=["a receipt", "no receipt"])
async def test_a_transaction_gets_through_when_the_first_endpoint_swallows_it_and_says_that_it_took_it(
    scene: EvmScene, receipts: bool
) -> None:
    async def swallow(request: dict) -> web.Response | None:
        if request["method"] == "eth_sendRawTransaction":
            return result(request, "0x" + keccak(hexstr=request["params"][0]).hex())
        return result(request, None) if request["method"] == "eth_getTransactionReceipt" and not receipts else None

    async with RpcProxy(scene.anvil.rpc_url, swallow) as liar, RpcProxy(scene.anvil.rpc_url) as honest:
        patience = Patience(poll=0.02, resend=0.1, timeout=5)
        ledger = await EvmLedger.connect([liar.url, honest.url], scene.deployment, scene.node, None, patience)
        for wei in (1, 2):
            await ledger.transfer_native(TO, wei)
        assert await ledger.native_balance(TO) == 3
        assert await _sent_by(scene.anvil, scene.node.address) == 2
        assert liar.asked.count("eth_sendRawTransaction") >= 2
        await ledger.close()


async def test_a_stuck_transaction_is_replaced_by_a_dearer_one_of_the_same_nonce(
    scene: EvmScene, tmp_path: Path
) -> None:
    await _mine_every_second(scene.anvil)
    patience = Patience(poll=0.05, resend=0.3, stuck=1.5, timeout=60)
    ledger = await scene.connect(scene.node, tmp_path / "journal", patience=patience)
    await _tell(scene.anvil, "anvil_setNextBlockBaseFeePerGas", hex(10**11))

    receipt = await ledger.transfer_native(TO, 7)

    assert await _nonce_of(scene.anvil, receipt.transaction) == 0
    assert await ledger.native_balance(TO) == 7
    await ledger.close()
    journal = Journal(tmp_path / "journal")
    (entry,) = journal.signed()
    journal.close()
    assert entry.stage is Stage.MINED
    assert receipt.transaction in [attempt.hash for attempt in entry.attempts[1:]]
    for before, after in itertools.pairwise(entry.attempts):
        assert after.max_fee * 100 >= before.max_fee * 110  # geth refuses a replacement below ten percent more


# --- Killed, and one commitment a slot

CHILD = """
import asyncio, os
from pathlib import Path
from typing import Any
from eth_account import Account
from ledger.base import Digest, RunId, Version
from ledger.deployment import Deployment
from ledger.evm import EvmLedger

async def main():
    account = Account.from_key(os.environ["KEY"])
    folder = Path(os.environ["FOLDER"])
    deployment = Deployment.load(folder / "deployment.json")
    ledger = await EvmLedger.connect([os.environ["RPC"]], deployment, account, folder / "journal")
    await ledger.submit(RunId(1), Version(0), 0, Digest(bytes([1]) * 32), 10, Digest(bytes([3]) * 32))

asyncio.run(main())
"""


@pytest.mark.parametrize("arrives", [False, True], ids=["before it left", "after it left"])
async def test_a_killed_submit_is_sent_again_byte_for_byte_and_counts_once(
    scene: EvmScene, tmp_path: Path, arrives: bool
) -> None:
    scene.deployment.save(tmp_path / "deployment.json")
    child: asyncio.subprocess.Process | None = None
    sent: list[str] = []

    async def kill(request: dict) -> web.Response | None:
        if request["method"] != "eth_sendRawTransaction":
            return None
        sent.append(request["params"][0])
        if arrives:
            await _tell(scene.anvil, "eth_sendRawTransaction", request["params"][0])
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        return web.Response(status=502)

    async with RpcProxy(scene.anvil.rpc_url, kill) as proxy:
        environment = {**os.environ, "KEY": scene.node.key.hex(), "FOLDER": str(tmp_path), "RPC": proxy.url}
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, env=environment)
        assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
    assert await _sent_by(scene.anvil, scene.node.address) == int(arrives)
    ((what, stage, raw),) = entries(tmp_path / "journal")
    assert (what, stage, ["0x" + raw.hex()]) == ("submit", Stage.SENT, sent)

    ledger = await scene.connect(scene.node, tmp_path / "journal")

    async def followed() -> bool:
        return [stage for _, stage, _ in entries(tmp_path / "journal")] == [Stage.MINED]

    await wait_until(followed)
    assert (await ledger.submission(scene.run, _commitment(scene))).state is State.SUBMITTED
    assert await ledger.slot(scene.run, Version(0), scene.node.address) == 1
    assert await _sent_by(scene.anvil, scene.node.address) == 1
    with pytest.raises(AlreadySubmitted):
        await _submit(ledger, scene)
    with pytest.raises(SlotMismatch):
        await _submit(ledger, scene, OTHER_ROOT)
    await ledger.close()
    assert [(stage, raw) for _, stage, raw in entries(tmp_path / "journal")] == [(Stage.MINED, raw)]


async def test_a_second_commitment_to_a_slot_is_never_signed_and_the_same_one_is_followed(
    scene: EvmScene, tmp_path: Path
) -> None:
    await _tell(scene.anvil, "evm_setAutomine", False)
    ledger = await scene.connect(scene.node, tmp_path / "journal", patience=Patience(poll=0.02, timeout=0.3))
    with pytest.raises(Unconfirmed):
        await _submit(ledger, scene)

    with pytest.raises(SlotTaken):
        await _submit(ledger, scene, OTHER_ROOT)
    same = asyncio.create_task(_submit(ledger, scene))
    await scene.anvil.mine()

    receipt = await same
    assert await _nonce_of(scene.anvil, receipt.transaction) == 0
    assert len(entries(tmp_path / "journal")) == 1
    await ledger.close()
