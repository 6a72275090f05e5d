"""When a player of a local network has left too early: real processes, a chain in memory."""

import asyncio
from pathlib import Path

import pytest

from ledger.base import Address
from node.devnet.cast import Player, RoleFailed
from node.devnet.network import Roles, look
from node.devnet.observer import Observer
from node.peers.client import PeerClient
from node.reading import Reader
from node.record import Record
from node.transport import session
from tests.roles.network import TRAINER, Build, Network


async def stage(network: Network, folder: Path, words: str) -> tuple[Roles, Observer]:
    """A cast whose only process is a worker that has run `words`, and who watches the run."""

    def player(name: str) -> Player:
        return Player(name, folder, Address(TRAINER.address), folder / name)

    worker = player("worker-1")
    worker.process = await asyncio.create_subprocess_exec(words)
    await worker.process.wait()
    ledger = network.connect(TRAINER)
    record = Record(await ledger.run(network.run))
    seen = Observer(ledger, network.spec, record, PeerClient(session(allow_private=True)), {}, lambda _: None)
    await Reader(ledger, seen.record).sync()
    return Roles(player("owner"), player("trainer"), player("relay"), (), (worker,), None), seen


async def test_who_left_as_the_run_ended_has_not_left_too_early(build: Build, tmp_path: Path) -> None:
    network = await build(validators=1)
    roles, seen = await stage(network, tmp_path, "true")
    async with seen.peers.session:
        await network.end_run()
        assert seen.record.ended is None  # it has not looked since

        await look(roles, seen)

    assert seen.record.ended is not None


@pytest.mark.parametrize(("words", "ends"), [("true", False), ("false", True)])
async def test_who_left_before_the_run_ended_or_by_an_error_is_named(
    build: Build, tmp_path: Path, words: str, ends: bool
) -> None:
    network = await build(validators=1)
    roles, seen = await stage(network, tmp_path, words)
    async with seen.peers.session:
        if ends:
            await network.end_run()

        with pytest.raises(RoleFailed, match=r"worker-1 ended with [01]:"):
            await look(roles, seen)
