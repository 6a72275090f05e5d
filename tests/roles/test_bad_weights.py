"""A trainer that publishes what is no model of the run, or none that runs: the others go on with what they have."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.base import State, Version
from node.errors import EngineError
from node.membership import first_weights, policy_of
from node.roles.relay import Relay
from node.shards.manifest import CHUNK_BYTES, FileEntry, Manifest
from tests.roles.network import TRAINER, Build, Network
from tests.roles.stage import Engineered, until

Spoil = Callable[[Path], None]


def lose(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def replace_by(name: str, text: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(text)

    return spoil


def ask_for_code(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "auto_map": {"AutoConfig": "evil.Config"}}))


def change_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" ")


SPOILT = {
    "no config": lose("config.json"),
    "no weights": lose("model.safetensors"),
    "code": ask_for_code,
    "garbage": replace_by("config.json", "{"),
    "tokenizer": change_tokenizer,
}


async def publish(network: Network, spoil: Spoil, version: int = 1) -> None:
    """Has a trainer that serves what it publishes put a spoilt copy of the base on chain."""
    origin = next((part for part in network.parts if part.account == TRAINER), None)
    origin = origin or await network.part(TRAINER, lambda member: (Relay(member), None))
    copy = network.folder / f"version {version}"
    shutil.copytree(network.base, copy, copy_function=shutil.copyfile)
    spoil(copy)
    root = await asyncio.to_thread(origin.member.checkpoints.add, copy)
    await origin.member.ledger.publish_checkpoint(network.run, Version(version), root)


@pytest.mark.parametrize("what", SPOILT)
async def test_everybody_goes_on_with_the_version_before_when_one_is_no_model_of_the_run(
    build: Build, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    network = await build(validators=1)
    parts = [await network.validator(), await network.relay(), await network.worker()]
    await publish(network, SPOILT[what])
    for part in parts:
        part.go()
    await until(lambda: all(1 in part.member.versions.refused for part in parts), "the others have refused it")

    (submission,) = await network.committed()

    assert submission.made.version == 0
    assert await network.live(submission.made.commitment) == State.SETTLED
    assert not any(part.finished for part in parts)
    assert caplog.text.count("weights refused, going on with other versions") == len(parts)


async def test_a_version_that_claims_a_whole_disk_is_refused_and_takes_nothing(build: Build) -> None:
    network = await build(validators=1)
    validator, worker = (await network.validator()).go(), (await network.worker()).go()
    origin = await network.part(TRAINER, lambda member: (Relay(member), None))
    chunks = 1 << 10
    claim = Manifest((FileEntry("a", chunks * CHUNK_BYTES, (bytes(32),) * chunks),), ())
    await origin.member.ledger.publish_checkpoint(network.run, Version(1), origin.member.checkpoints.begin(claim))

    await until(lambda: all(1 in part.member.versions.refused for part in (validator, worker)), "both have refused it")

    assert not any(list((part.member.state.checkpoints / "partial").iterdir()) for part in (validator, worker))
    assert not validator.finished and not worker.finished


async def test_what_came_of_versions_that_were_never_whole_is_deleted_before_another_is_fetched(build: Build) -> None:
    network = await build(validators=1)
    member = (await network.validator()).member
    never = [Manifest((FileEntry("a", 1, (bytes([k]) * 32,)),), ()) for k in range(8)]
    for version in range(1, 8):
        member.checkpoints.begin(never[version])
        await network.connect(TRAINER).publish_checkpoint(network.run, Version(version), never[version].root)
    await member.sync()
    fetching = asyncio.create_task(member.weights.folder(Version(7)))
    partial = member.state.checkpoints / "partial"

    left = {never[v].root.hex() for v in range(3, 8)}
    await until(lambda: {path.name for path in partial.iterdir() if path.is_dir()} == left, "versions 1 and 2 are gone")

    assert member.versions.held(Version(0)) is not None
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


@pytest.mark.parametrize("what", SPOILT)
async def test_a_node_starts_with_an_older_version_when_the_newest_on_its_disk_is_no_model(
    build: Build, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    network = await build(validators=1)
    await publish(network, SPOILT[what])
    await publish(network, replace_by("README.md", "a good one, which is not here yet"), version=2)
    member = (await network.validator()).member
    await member.sync()
    bad = member.record.root(Version(1))
    assert bad is not None
    await member.downloader.fetch(bad)

    assert await first_weights(member) == member.versions.held(Version(0))
    assert await first_weights(member) == member.versions.held(Version(0))
    assert caplog.text.count("weights refused") == 1


async def test_a_newcomer_starts_with_version_0_when_the_newest_is_no_model(build: Build) -> None:
    network = await build(validators=1)
    await publish(network, SPOILT["no config"])
    member = (await network.validator(weights=False)).member

    assert await first_weights(member) == member.versions.held(Version(0))


async def test_weights_that_this_disk_changed_are_fetched_again_instead_of_refused(build: Build) -> None:
    network = await build(validators=1)
    await network.part(TRAINER, lambda member: (Relay(member), None))
    member = (await network.validator()).member
    await member.sync()
    folder = member.versions.held(Version(0))
    assert folder is not None
    (folder / "config.json").chmod(0o644)
    (folder / "config.json").write_text("{")

    again = await first_weights(member)

    assert again is not None and (again / "config.json").read_bytes() == (network.base / "config.json").read_bytes()
    assert not member.versions.refused


class Picky(Engineered):
    """Cannot run the weights of one folder."""

    bad: Path | None = None
    loads: list[Path]

    def load(self, folder: Path) -> None:
        self.loads = [*getattr(self, "loads", []), folder]
        if folder == self.bad:
            raise EngineError("logits that are not finite")
        super().load(folder)


async def test_a_worker_goes_on_with_the_version_before_when_its_engine_fails_on_the_newest(build: Build) -> None:
    network = await build(validators=1)
    validator, engine = (await network.validator()).go(), Picky(policy_of(network.spec))
    await publish(network, replace_by("README.md", "another root"))
    worker = await network.worker(engine=engine)
    await worker.member.sync()
    engine.bad = await worker.member.weights.folder(Version(1))
    worker.go()

    (submission,) = await network.committed()

    assert submission.made.version == 0
    assert engine.loads == [engine.bad] * 3 + [worker.member.versions.held(Version(0))]
    assert 1 in worker.member.versions.refused and 1 not in validator.member.versions.refused


async def test_a_worker_gives_up_when_its_engine_fails_on_what_it_had_run(build: Build) -> None:
    network = await build(validators=1)
    (await network.validator()).go()
    engine = Picky(policy_of(network.spec))
    worker = (await network.worker(engine=engine)).go()
    (submission,) = await network.committed()
    engine.failures = 99
    await network.live(submission.made.commitment)
    await until(lambda: worker.finished)

    with pytest.raises(EngineError, match="3 times in a row"):
        await worker.task  # type: ignore[misc]


async def test_a_worker_gives_up_when_its_engine_runs_no_open_version(build: Build) -> None:
    network = await build(validators=1)
    await publish(network, replace_by("README.md", "another root"))
    worker = await network.worker(engine=network.engine(failures=99))
    await worker.member.sync()
    await worker.member.weights.folder(Version(1))  # both are here, so that it is known which is tried first
    worker.go()
    await until(lambda: worker.finished)

    with pytest.raises(EngineError, match="3 times in a row"):
        await worker.task  # type: ignore[misc]
    assert 1 in worker.member.versions.refused and 0 not in worker.member.versions.refused
