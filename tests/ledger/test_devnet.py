"""anvil, started and ended with whoever asked for it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from ledger.devnet import Anvil, DevnetError, find_anvil
from tests.ledger.rpc_proxy import ask, wait_until

# The first two accounts of the mnemonic "test test ... junk", as Foundry's book lists them.
FIRST = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
SECOND = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


async def _number(url: str, method: str, *parameters: object) -> int:
    return int(await ask(url, method, *parameters), 16)


async def test_two_chains_run_beside_each_other() -> None:
    async with Anvil(block_time=None) as one, Anvil(block_time=None, chain_id=84532) as two:
        assert one.rpc_url != two.rpc_url
        assert await _number(one.rpc_url, "eth_chainId") == 31337
        assert await _number(two.rpc_url, "eth_chainId") == 84532
        assert [account.address for account in one.accounts[:2]] == [FIRST, SECOND]
        await one.fund(FIRST, 5)
        assert await _number(one.rpc_url, "eth_getBalance", FIRST, "latest") == 5


async def test_blocks_come_by_themselves_when_a_block_time_is_set() -> None:
    async with Anvil(block_time=1) as anvil:

        async def third() -> bool:
            return await _number(anvil.rpc_url, "eth_blockNumber") >= 2

        await wait_until(third, 10)


async def test_the_process_is_gone_after_the_block() -> None:
    async with Anvil(block_time=None) as anvil:
        pid = anvil.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(aiohttp.ClientConnectionError):
        await _number(anvil.rpc_url, "eth_chainId")


async def test_a_taken_port_is_told() -> None:
    async with Anvil(block_time=None) as anvil:
        port = int(anvil.rpc_url.rpartition(":")[2])
        with pytest.raises(DevnetError, match=r"did not start: .*in use"):
            async with Anvil(block_time=None, port=port):
                pass


async def test_a_chain_with_a_state_file_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with Anvil(block_time=None, state=tmp_path / "state.json") as anvil:
        await anvil.mine(3)
        await anvil.fund(FIRST, 7)
    async with Anvil(block_time=None, state=tmp_path / "state.json") as anvil:
        assert await _number(anvil.rpc_url, "eth_blockNumber") == 3
        assert await _number(anvil.rpc_url, "eth_getBalance", FIRST, "latest") == 7


CHILD = """
import asyncio
from ledger.devnet import Anvil

async def main():
    async with Anvil(block_time=None) as anvil:
        print(anvil.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
async def test_the_process_dies_with_a_killed_parent() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    pid = int(await asyncio.wait_for(child.stdout.readline(), 60))
    child.send_signal(signal.SIGKILL)
    await child.wait()

    async def gone() -> bool:
        return _is_gone(pid)

    await wait_until(gone)


def _is_gone(pid: int) -> bool:
    """A zombie counts: nobody may be there to collect it."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_named_binary_is_taken_and_a_missing_one_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = tmp_path / "my-anvil"
    binary.touch()
    monkeypatch.setenv("ANVIL", str(binary))
    assert find_anvil() == binary
    monkeypatch.setenv("ANVIL", str(tmp_path / "none"))
    with pytest.raises(DevnetError, match="which is no file"):
        find_anvil()


async def test_a_named_binary_that_may_not_be_run_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my-anvil").touch(mode=0o644)
    monkeypatch.setenv("ANVIL", str(tmp_path / "my-anvil"))
    with pytest.raises(DevnetError, match="my-anvil cannot be started: Permission denied: make it executable"):
        async with Anvil():
            pass


def test_a_binary_installed_by_npm_above_the_working_folder_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil"
    binary.parent.mkdir(parents=True)
    binary.touch()
    (tmp_path / "deep" / "folder").mkdir(parents=True)
    monkeypatch.delenv("ANVIL", raising=False)
    monkeypatch.chdir(tmp_path / "deep" / "folder")
    assert find_anvil() == binary
