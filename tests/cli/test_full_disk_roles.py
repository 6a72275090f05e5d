"""Roles and commands on a full disk: what is full, what to do, and the same command goes on afterwards."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from eth_utils.crypto import keccak

from ledger.base import Submitted
from tests.cli.chain import Chain
from tests.cli.command import command
from tests.cli.stage import SECONDS, staged
from tests.ledger.rpc_proxy import RpcProxy
from tests.node.small_disk import PAGE, Disk

SLOTS = "0x" + keccak(text="slots(uint256,uint64,address)")[:4].hex()


@pytest.mark.parametrize("left", [0, 3 * PAGE])
def test_nothing_is_sent_that_the_journal_has_no_room_for(chain: Chain, disk: Disk, left: int) -> None:
    words = ("--wallet", chain.wallets["relay"], *chain.at(), "--json")

    def tokens() -> int:
        return int(json.loads(command("stake", "show", *words, home=disk.folder).out)["tokens"])

    before = tokens()
    disk.fill(leave=left)
    full = command("faucet", "--amount", "2", *words, home=disk.folder)
    between = tokens()
    disk.make_room()
    again = command("faucet", "--amount", "2", *words, home=disk.folder)

    assert full.code == 1
    assert str(disk.folder) in full.said and "disk is full" in full.said and "Make room" in full.said
    assert again.code == 0
    assert (between - before, tokens() - before) == (0, 2 * 10**18)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_worker_goes_on_where_its_disk_was_full(tmp_path: Path, disk: Disk) -> None:
    """First without room for the weights, then without room for the rollouts."""
    asked, room = asyncio.Event(), asyncio.Event()

    async def hold(request: dict[str, Any]) -> web.Response | None:
        if request["method"] == "eth_call" and request["params"][0]["data"].startswith(SLOTS):
            asked.set()  # the worker is about to generate
            await room.wait()
        return None

    async with staged(tmp_path) as stage, RpcProxy(stage.chain.anvil.rpc_url, hold) as proxy:
        trainer = stage.start("trainer", "--model", "tiny")
        await trainer.logs("published", "version=0")

        disk.fill(leave=1_000_000)
        full = stage.start("worker", "--engine", "scripted", url=proxy.url, home=disk.folder)
        assert await full.end() == 1
        assert "free: make room" in full.lines[-1]

        disk.make_room()
        worker = stage.start("worker", "--engine", "scripted", url=proxy.url, home=disk.folder)
        await asyncio.wait_for(asked.wait(), SECONDS)
        disk.fill()
        room.set()
        assert await worker.end() == 1
        assert ".rollouts: No space left on device: the disk is full. Make room" in worker.lines[-1]

        disk.make_room()
        worker = stage.start("worker", "--engine", "scripted", url=proxy.url, home=disk.folder)
        await worker.logs("submitted", "commitment=")
        reader = await stage.chain.ledger("owner")
        events = await reader.events(stage.chain.run, 0, (await reader.head()).number)
        await reader.close()
        worker.running.terminate()
        assert await worker.end() == 1

    assert sum(isinstance(event, Submitted) for event in events) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_trainer_goes_on_where_its_disk_was_full(tmp_path: Path, disk: Disk) -> None:
    async with staged(tmp_path) as stage:
        disk.fill(leave=1_000_000)
        trainer = stage.start("trainer", "--model", "tiny", home=disk.folder)
        assert await trainer.end() == 1
        assert "No space left on device: the disk is full. Make room" in trainer.lines[-1]

        disk.make_room()
        trainer = stage.start("trainer", "--model", "tiny", home=disk.folder)
        await trainer.logs("published", "version=0")
        trainer.running.terminate()
        assert await trainer.end() == 1
