"""The trainer: what it trains on, and that a kill loses no step and uses no group twice."""

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from ledger.base import Address, Digest, State, Version
from ledger.errors import InsufficientNativeBalance, Unreachable, reverted
from node.errors import ConfigError
from node.runspec import RunSpec
from node.training.hyper import Hyper
from node.training.step import Learner
from tests.roles.network import TRAINER, Build, Network, Part
from tests.roles.stage import FastClock, Killed, Watched, key, until


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def steps(spec: RunSpec, count: int, **economics: int) -> RunSpec:
    terms = spec.economics.model_copy(update=economics)
    return spec.model_copy(update={"max_steps": count, "economics": terms})


async def accepted_work(network: Network) -> Digest:
    """A submission that the network's one validator signs for."""
    (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.pass_time(24)
    await until(lambda: network.state(commitment).final or network.is_signed(commitment))
    return commitment


def published(network: Network) -> list[Digest]:
    return [each.manifest_root for each in network.chain.runs.record(network.run).checkpoints]


def lineage(network: Network, step: int) -> str:
    """What a training state of this run at `step` says that it came from."""
    ledger = network.connect(TRAINER)
    return (
        f"chain {ledger.chain_id}, contract {ledger.coordinator}, run {network.run}, version {step - 1}, "
        f"root {published(network)[step - 1].hex()}"
    )


def held(part: Part, root: Digest) -> bool:
    return part.member.checkpoints.complete(root) is not None


async def test_accepted_rollouts_become_the_next_version_and_the_run_ends_with_the_last_step(
    build: Build, spec: RunSpec
) -> None:
    network = await build(validators=1, spec=steps(spec, 1))
    trainer = (await network.trainer()).go()
    commitment = await accepted_work(network)
    await until(lambda: len(published(network)) == 2)
    await network.pass_time(24)
    assert await network.final(commitment) == State.SETTLED
    await until(lambda: trainer.finished)

    assert trainer.task is not None and trainer.task.exception() is None
    assert network.chain.runs.state(network.run).ended_at
    assert trainer.role.learner.consumed == {(commitment, 0), (commitment, 1)}
    assert held(trainer, published(network)[1])  # fetched from whoever had the file: it was never handed over


async def test_version_0_is_published_by_the_trainer_when_the_run_has_none(build: Build, spec: RunSpec) -> None:
    network = await build(validators=1, publish=False)
    (await network.trainer()).go()
    await until(lambda: len(published(network)) == 1)

    assert published(network)[0].hex() == spec.model.manifest_root


async def test_a_group_is_used_once_when_the_trainer_is_stopped_between_two_steps(build: Build, spec: RunSpec) -> None:
    network = await build(validators=1, spec=steps(spec, 2))
    plain = network.connect

    def stop_at_second(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "publish_checkpoint" and arguments[1] == 2:
            raise Killed

    network.connect = lambda account: Watched(plain(account), before=stop_at_second)  # type: ignore[arg-type,assignment]
    trainer = (await network.trainer(rollouts=2)).go()  # one group a step
    commitment = await accepted_work(network)
    await until(lambda: trainer.finished)
    assert len(trainer.role.learner.consumed) == 2 and len(published(network)) == 2
    await trainer.stop()

    network.connect = plain
    again = (await network.trainer(rollouts=2)).go()
    assert again.role.learner.version == 2
    await until(lambda: len(published(network)) == 3)

    assert again.role.learner.consumed == {(commitment, 0), (commitment, 1)}
    assert held(again, published(network)[2])


@pytest.mark.parametrize("moment", ["state not saved", "not published", "published and not noticed"])
async def test_training_goes_on_from_the_step_it_had_when_it_is_killed(
    build: Build, spec: RunSpec, moment: str
) -> None:
    network = await build(validators=1, spec=steps(spec, 1))
    plain = network.connect

    class Unsaved(Learner):
        def save_state(self, *_: object, **__: object) -> Any:
            raise Killed

    def kill(name: str, _: tuple[Any, ...]) -> None:
        if name == "publish_checkpoint":
            raise Killed

    if moment == "state not saved":
        learner: Learner | None = Unsaved(network.base, Hyper(learning_rate=1e-3), 1.0, 1)
    else:
        learner = None
        when = "before" if moment == "not published" else "after"
        network.connect = lambda account: Watched(plain(account), **{when: kill})  # type: ignore[arg-type,assignment]
    trainer = (await network.trainer(learner)).go()
    network.connect = plain
    commitment = await accepted_work(network)
    await until(lambda: trainer.finished)
    assert len(published(network)) == (2 if moment.startswith("published") else 1)
    await trainer.stop()

    again = (await network.trainer()).go()
    assert again.role.learner.version == (0 if moment == "state not saved" else 1)
    await until(lambda: len(published(network)) == 2)
    await network.pass_time(24)
    await until(lambda: again.finished)

    assert again.task is not None and again.task.exception() is None
    assert again.role.learner.consumed == {(commitment, 0), (commitment, 1)}
    assert held(again, published(network)[1])


async def test_a_trainer_refuses_to_go_on_from_another_state_than_the_chains(build: Build, spec: RunSpec) -> None:
    network = await build(validators=1)
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), Digest(b"\x09" * 32))
    trainer = (await network.trainer()).go()
    await until(lambda: trainer.finished)

    with pytest.raises(ConfigError, match=r"the chain has version 1, the training state here is at step 0.*--home"):
        await trainer.task  # type: ignore[misc]


@pytest.mark.parametrize("here", [False, True])
async def test_a_trainer_refuses_to_go_on_when_the_chain_has_other_weights_under_its_number(
    build: Build, tmp_path: Path, here: bool
) -> None:
    network = await build(validators=1)
    learner = Learner(network.base, Hyper(learning_rate=1e-3), 1.0, 1)
    learner.version, learner.lineage = Version(1), lineage(network, 1)
    trainer, root = await network.trainer(learner), Digest(b"\x09" * 32)
    if here:
        shutil.copytree(network.base, tmp_path / "other")
        (tmp_path / "other" / "README.md").write_text("another root")
        root = trainer.member.checkpoints.add(tmp_path / "other")
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), root)
    trainer.go()
    await until(lambda: trainer.finished)

    with pytest.raises(ConfigError, match="another trainer process uses this key"):
        await trainer.task  # type: ignore[misc]


@pytest.mark.parametrize("of", ["another run", "another chain", "other weights before"])
@pytest.mark.parametrize("step", [1, 2])
async def test_a_trainer_refuses_a_training_state_that_is_not_of_this_run(
    build: Build, tmp_path: Path, step: int, of: str
) -> None:
    network = await build(validators=1)
    ledger = network.connect(TRAINER)
    await ledger.publish_checkpoint(network.run, Version(1), published(network)[0])  # a step that changed nothing
    right = lineage(network, step)
    wrong = {
        "another run": right.replace(f"run {network.run},", f"run {network.run + 1},"),
        "another chain": right.replace(f"chain {ledger.chain_id},", "chain 1,"),
        "other weights before": right[:-64] + "09" * 32,
    }[of]
    assert wrong != right
    learner = Learner(network.base, Hyper(learning_rate=1e-3), 1.0, 1)
    learner.version = Version(step)
    learner.save_state(tmp_path / "states", wrong)
    other = Learner(network.base, Hyper(learning_rate=1e-3), 1.0, 1)
    assert other.resume(tmp_path / "states")
    trainer = (await network.trainer(other)).go()
    await until(lambda: trainer.finished)

    with pytest.raises(ConfigError, match=f"at step {step}, is not of this run: it is of '{wrong}', and the"):
        await trainer.task  # type: ignore[misc]
    assert len(published(network)) == 2


async def test_a_trainer_without_gas_ends_with_which_address_needs_how_much(build: Build) -> None:
    network = await build(validators=1, publish=False)
    plain = network.connect

    def watch(name: str, _: tuple[Any, ...]) -> None:
        if name == "publish_checkpoint":
            operands = {"account": TRAINER.address, "balance": 5, "needed": 700}
            raise reverted("InsufficientNativeBalance", operands)

    network.connect = lambda account: Watched(plain(account), before=watch)  # type: ignore[arg-type,return-value]
    trainer = (await network.trainer()).go()
    await until(lambda: trainer.finished)

    with pytest.raises(InsufficientNativeBalance, match=f"{TRAINER.address} holds 5 wei and needs 700 wei"):
        await trainer.task  # type: ignore[misc]


async def test_while_the_chain_is_away_it_is_said_once_that_nothing_is_published_and_tried_ever_less_often(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1, publish=False)
    plain, clock, tries = network.connect, FastClock(), list[float]()

    def watch(name: str, _: tuple[Any, ...]) -> None:
        if name == "publish_checkpoint":
            tries.append(clock.monotonic())
            raise Unreachable("nobody answers there")

    network.connect = lambda account: Watched(plain(account), before=watch)  # type: ignore[arg-type,return-value]
    (await network.trainer()).go()
    await until(lambda: len(tries) >= 5)

    said = [line.getMessage() for line in caplog.records if "not published" in line.getMessage()]
    assert said == ["not published, looking again"]
    waits = [later - earlier for earlier, later in pairwise(tries[:5])]
    assert [wait >= 2**k for k, wait in enumerate(waits)] == [True] * 4  # seconds, not half of one each time
    tries.clear()
    network.chain.mine(1)
    await until(lambda: len(tries) > 0)


async def test_a_checkpoint_that_comes_too_soon_is_published_when_its_time_has_come(
    build: Build, spec: RunSpec
) -> None:
    network = await build(validators=1, spec=steps(spec, 1, checkpoint_interval=500))
    (await network.trainer()).go()
    await accepted_work(network)
    await network.pass_time(8)
    assert len(published(network)) == 1

    network.chain.mine(500)
    await until(lambda: len(published(network)) == 2)


async def test_a_trainer_leaves_when_the_owner_has_ended_the_run(build: Build) -> None:
    network = await build(validators=1)
    trainer = (await network.trainer()).go()
    await network.end_run()
    await until(lambda: trainer.finished)

    assert trainer.task is not None and trainer.task.exception() is None
    assert len(published(network)) == 1


async def test_a_trainer_leaves_when_the_run_was_ended_before_it_had_a_version(build: Build) -> None:
    network = await build(validators=1, publish=False)
    await network.end_run()
    trainer = (await network.trainer()).go()
    await until(lambda: trainer.finished)

    assert trainer.task is not None and trainer.task.exception() is None
    assert published(network) == []


async def test_a_trainer_stays_until_a_relay_has_the_last_version_and_the_relay_serves_it(build: Build) -> None:
    network = await build(validators=1)
    owner = network.connect(key(1))
    await owner.set_relay(network.run, Address(key(3).address), True)
    relay = await network.relay()
    trainer = (await network.trainer()).go()
    await network.end_run()
    assert not trainer.finished
    assert relay.member.checkpoints.complete(published(network)[0]) is None

    relay.go()
    await until(lambda: trainer.finished)
    await trainer.stop()

    assert held(relay, published(network)[0])
    late = await network.validator(weights=False)
    await late.member.sync()
    assert await late.member.weights.folder(Version(0)) == await asyncio.to_thread(
        late.member.versions.held, Version(0)
    )
