"""What `EvmLedger` does beyond the contract of every ledger: refusing wrong chains, surviving lies, both beacons."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from eth_account import Account
from eth_utils import keccak
from hexbytes import HexBytes
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import Digest, RunId, Version
from ledger.beacons import L1_BLOCK
from ledger.deployment import Deployment
from ledger.devnet import Anvil
from ledger.errors import KeystoreError, LedgerError, NotDeployed, Reverted, Unreachable, WrongChain
from ledger.events import RANGE_BLOCKS, read_log
from ledger.evm import EvmLedger
from ledger.interfaces import interface
from ledger.translation import BadAnswer
from tests.ledger.evm_scene import ROOT, EvmScene, evm_scene
from tests.ledger.rpc_proxy import RpcProxy, ask, error, result, wait_until


@pytest.fixture
async def scene() -> AsyncIterator[EvmScene]:
    """On an anvil of the test's own, which mines a block per transaction."""
    async with Anvil(block_time=None) as anvil:
        yield await evm_scene(anvil)


async def _reader(url: str, deployment: Deployment) -> EvmLedger:
    return await EvmLedger.connect([url], deployment, None, None)


async def _headers(anvil: Anvil, last: int) -> list[tuple[int, bytes]]:
    """(time, mixHash) of blocks 0 to `last`, without the code under test."""
    found = []
    for number in range(last + 1):
        block = await ask(anvil.rpc_url, "eth_getBlockByNumber", hex(number), False)
        found.append((int(block["timestamp"], 16), bytes.fromhex(block["mixHash"][2:])))
    return found


# --- Connecting


async def test_another_chain_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    with pytest.raises(WrongChain, match="serves chain 31337, not 84532"):
        await _reader(anvil.rpc_url, replace(deployment, chain_id=84532))


async def test_a_second_endpoint_of_another_chain_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    async with Anvil(block_time=None, chain_id=84532) as other:
        with pytest.raises(WrongChain):
            await EvmLedger.connect([anvil.rpc_url, other.rpc_url], deployment, None, None)


async def test_an_address_without_code_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    nowhere = Account.create().address
    for wrong in ({"token": nowhere}, {"staking": nowhere}, {"coordinator": nowhere}):
        with pytest.raises(NotDeployed, match=f"no contract stands at {nowhere}"):
            await _reader(anvil.rpc_url, replace(deployment, **wrong))


async def test_other_code_than_this_versions_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    swapped = replace(deployment, staking=deployment.coordinator, coordinator=deployment.staking)
    with pytest.raises(NotDeployed, match="is not the Staking of this version"):
        await _reader(anvil.rpc_url, swapped)


async def test_contracts_of_two_deployments_are_refused_together(scene: EvmScene) -> None:
    second = await evm_scene(scene.anvil)
    mixed = replace(scene.deployment, coordinator=second.deployment.coordinator)
    with pytest.raises(NotDeployed, match="staking\\(\\)"):
        await _reader(scene.anvil.rpc_url, mixed)


async def test_no_endpoint_and_a_silent_one_are_unreachable(deployment: Deployment) -> None:
    for urls in ([], ["http://127.0.0.1:1"]):
        with pytest.raises(Unreachable):
            await EvmLedger.connect(urls, deployment, None, None)


async def test_a_ledger_without_an_account_reads_and_says_why_it_cannot_write(scene: EvmScene) -> None:
    ledger = await _reader(scene.anvil.rpc_url, scene.deployment)
    assert await ledger.run_count() == 1
    with pytest.raises(KeystoreError, match="no wallet"):
        await ledger.claim()
    await ledger.close()


# --- Lies

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
        ledger = await _reader(liar.url, scene.deployment)
        honest = await ledger.run(scene.run)

        async def forge(request: dict) -> web.Response | None:
            if request["method"] != "eth_getLogs":
                return None
            logs = await ask(scene.anvil.rpc_url, "eth_getLogs", *request["params"])
            for log in logs:
                log["data"] = log["data"].replace(honest.spec.hex(), b'{"name":"lie"}'.hex())
            return result(request, logs)

        liar.rule = forge
        fresh = await _reader(liar.url, scene.deployment)
        with pytest.raises(Unreachable, match="another digest"):
            await fresh.run(scene.run)
        await fresh.close()
        await ledger.close()


# --- Events


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
        ledger = await _reader(proxy.url, scene.deployment)
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

    plain = await _reader(scene.anvil.rpc_url, scene.deployment)
    async with RpcProxy(scene.anvil.rpc_url, strip) as proxy:
        stripped = await _reader(proxy.url, scene.deployment)
        last = (await plain.head()).number
        assert await stripped.events(scene.run, 0, last) == await plain.events(scene.run, 0, last)
        await stripped.close()
    await plain.close()


async def test_a_log_that_was_not_asked_for_is_not_believed(scene: EvmScene) -> None:
    async with RpcProxy(scene.anvil.rpc_url) as liar:
        ledger = await _reader(liar.url, scene.deployment)
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


# --- Blocks and beacons


async def test_the_first_block_at_any_time_is_found(scene: EvmScene) -> None:
    for count, interval in ((40, 2), (3, 100), (30, 1)):
        await ask(scene.anvil.rpc_url, "anvil_mine", hex(count), hex(interval))
    ledger = await _reader(scene.anvil.rpc_url, scene.deployment)
    last = (await ledger.head()).number
    times = [time for time, _ in await _headers(scene.anvil, last)]

    for wanted in sorted({0, *times, *(time + 1 for time in times)}):
        expected = next((number for number, time in enumerate(times) if time >= wanted), None)
        found = await ledger.block_at(wanted)
        assert (None if found is None else found.number) == expected
    await ledger.close()


async def test_a_devnet_beacon_is_the_hash_of_the_second_mix_after_it_once_confirmed(scene: EvmScene) -> None:
    deployment = replace(scene.deployment, confirmations=3)
    ledger = await _reader(scene.anvil.rpc_url, deployment)
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
        ledger = await _reader(proxy.url, scene.deployment)
        last = (await ledger.head()).number
        headers = await _headers(scene.anvil, last)
        for number in range(last - 59, last + 1):
            origins = ((time - 4) // 12 * 12 for time, _ in headers)
            late = [i for i, origin in enumerate(origins) if i > number and origin >= headers[number][0] + 24]
            expected = Digest(headers[late[0]][1]) if late else None
            assert await ledger.beacon(number) == expected
        assert late == []
        await ledger.close()


# --- Time


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
        ledger = await _reader(proxy.url, scene.deployment)
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
        devnet = await _reader(proxy.url, scene.deployment)
        assert (await devnet.head()).time >= true.time + 100_000
        await devnet.close()


# --- Keys


async def test_no_key_is_in_an_error_or_the_journal(scene: EvmScene, tmp_path: Path) -> None:
    ledger = await scene.connect(scene.anvil.accounts[1], tmp_path / "journal")
    await ledger.faucet(1)
    with pytest.raises(Reverted) as refusal:
        await ledger.claim()
    await ledger.close()

    told = repr(refusal.getrepr(showlocals=True))
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())  # noqa: ASYNC240 - a test may block
    key = scene.anvil.accounts[1].key
    assert key.hex() not in told
    assert key not in written
