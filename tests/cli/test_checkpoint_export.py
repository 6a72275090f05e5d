"""Weights for a person: what a node of this home has is found on this disk, and nobody is waited for in vain."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest_asyncio
from eth_account import Account

from ledger.base import Address, Digest, RunId, Version
from node.config import Home
from node.files import locked
from node.launch import create_run
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import make_app, serve
from tests.cli.chain import Chain
from tests.cli.command import Answer, command

SOON = 20.0  # seconds; a download that nothing comes of is given up after 120


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def exported(chain: Chain, run: RunId, home: Path, *more: str | Path) -> Answer:
    return command("checkpoints", "export", "0", home / "out", "--run", str(run), *chain.at(), *more, home=home)


async def empty_source(open_: AsyncExitStack, folder: Path) -> str:
    """The URL of a node that has no weights."""
    app = make_app(1000)
    add_routes(app, CheckpointStore(folder / "empty"))
    runner, port = await serve(app, "127.0.0.1", 0)
    open_.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{port}"


async def run_of_eight_versions(chain: Chain, open_: AsyncExitStack, urls: dict[str, str]) -> RunId:
    """Its validator and its relay are at `urls`, until `open_` ends."""
    owner = await chain.ledger("owner")
    open_.push_async_callback(owner.close)
    people = []
    for role, url in urls.items():
        ledger = await chain.ledger(role)
        open_.push_async_callback(ledger.close)
        await ledger.set_endpoint(url)
        open_.push_async_callback(ledger.set_endpoint, "")
        people.append(ledger.account)
    run = await create_run(owner, chain.spec, owner.account, people[:1], 1, people[1:], 1)
    for version in range(8):
        await owner.publish_checkpoint(run, Version(version), Digest(bytes([version + 1]) * 32))
    return run


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lonely(chain: Chain) -> dict[str, RunId]:
    """Two runs with version 0: one in which nobody has an endpoint, one whose relay's is a private address."""
    owner, relay = await chain.ledger("owner"), await chain.ledger("relay")
    await relay.set_endpoint("http://10.1.2.3:8700")
    strangers = [Address(Account.create().address) for _ in range(2)]
    runs = {}
    for name, relays in (("nobody", strangers[1:]), ("private", [relay.account])):
        runs[name] = await create_run(owner, chain.spec, owner.account, strangers[:1], 1, relays, 1)
        await owner.publish_checkpoint(runs[name], Version(0), chain.root)
    await owner.close()
    await relay.close()
    return runs


async def test_what_a_running_node_of_the_home_has_is_copied_from_this_disk(
    chain: Chain, lonely: dict[str, RunId], tmp_path: Path
) -> None:
    state = Home(tmp_path).state(31337, chain.address("owner"), 1, chain.address("relay"))
    store = CheckpointStore(state.checkpoints)
    store.add(chain.base)

    with locked(state.lock):
        before = sorted((path, path.stat().st_mtime_ns) for path in state.folder.rglob("*"))
        answer = await asyncio.to_thread(exported, chain, lonely["nobody"], tmp_path)

    assert answer.code == 0
    assert answer.said == f"found on this machine: {state.checkpoints / 'checkpoints' / chain.root.hex()}"
    assert files(tmp_path / "out") == files(chain.base)
    assert sorted((path, path.stat().st_mtime_ns) for path in state.folder.rglob("*")) == before


def test_what_a_disk_has_changed_is_not_exported(chain: Chain, lonely: dict[str, RunId], tmp_path: Path) -> None:
    state = Home(tmp_path).state(31337, chain.address("owner"), 1, chain.address("relay"))
    CheckpointStore(state.checkpoints).add(chain.base)
    weights = state.checkpoints / "checkpoints" / chain.root.hex() / "model.safetensors"
    weights.chmod(0o644)
    with weights.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))

    answer = exported(chain, lonely["nobody"], tmp_path)

    assert answer.code == 75
    assert weights.exists() and not (tmp_path / "out").exists()  # another's store is only read


async def test_a_version_that_nobody_keeps_any_more_is_said_soon_with_those_that_are_kept(
    chain: Chain, tmp_path: Path
) -> None:
    async with AsyncExitStack() as open_:
        url = await empty_source(open_, tmp_path)
        run = await run_of_eight_versions(chain, open_, {"validator": url, "worker": "http://127.0.0.1:1"})
        began = time.monotonic()
        answer = await asyncio.to_thread(
            command, "checkpoints", "export", "2", tmp_path / "out", "--run", str(run), *chain.at(), "--allow-private",
            home=tmp_path,
        )  # fmt: skip

    assert time.monotonic() - began < SOON / 2
    assert answer.code == 2
    assert (
        "error: nobody keeps version 2 any more: nodes keep version 0 and the newest 5, so export one of "
        in answer.said
    )
    assert "one of 0, 3, 4, 5, 6, 7 (asked: " in answer.said
    assert f"{url}: does not have it" in answer.said
    assert "http://127.0.0.1:1: cannot connect to" in answer.said and "Error:" not in answer.said


def test_nobody_is_waited_for_where_nobody_can_be_asked(chain: Chain, lonely: dict[str, RunId], tmp_path: Path) -> None:
    began = time.monotonic()
    nobody = exported(chain, lonely["nobody"], tmp_path)
    private = exported(chain, lonely["private"], tmp_path)

    assert time.monotonic() - began < SOON
    assert nobody.code == 75
    assert nobody.said.startswith("error: version 0 is with no node of this home, and no other node has announced")
    assert private.code == 2
    assert "(http://10.1.2.3:8700): on a local network, add --allow-private" in private.said
