"""A network whose versions travel as patches: made by the trainer, applied and passed on by those who hold weights."""

import logging
from typing import Any

import pytest
import torch

from ledger.base import Digest, Version
from node.runspec import RunSpec
from node.shards.patch_index import Span
from node.training.hyper import Hyper
from node.training.step import Learner
from tests.roles.network import Build, Network, Part
from tests.roles.stage import until


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def slow_learner(network: Network) -> Learner:
    """At the rate of INTELLECT-2, at which few weights change."""
    return Learner(network.base, Hyper(learning_rate=3e-7), network.spec.sampling.temperature, 1)


async def train_once(network: Network, trainer: Part) -> Digest:
    """Has a submission accepted and trained on; the root of the version that it makes."""
    (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.pass_time(24)
    await until(lambda: len(trainer.member.record.checkpoints) == 2, "version 1")
    return trainer.member.record.checkpoints[1].manifest_root


def events(caplog: pytest.LogCaptureFixture, what: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.getMessage() == what]  # type: ignore[attr-defined]


def fetched(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What nodes say of version 1."""
    return [each for each in events(caplog, "weights fetched") if each["version"] == 1]


async def test_a_version_reaches_who_has_the_one_before_as_a_patch_and_goes_on_from_there(
    build: Build, spec: RunSpec, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "intellect-node")
    network = await build(validators=1, spec=spec.model_copy(update={"max_steps": 2}))
    trainer = (await network.trainer(slow_learner(network))).go()
    relay = (await network.relay()).go()
    await until(lambda: relay.member.versions.held(Version(0)) is not None, "version 0 at the relay")
    caplog.clear()

    root = await train_once(network, trainer)

    await until(lambda: relay.member.versions.held(Version(1)) is not None, "version 1 at the relay")
    await until(lambda: bool(fetched(caplog)), "the line about it")
    made = events(caplog, "patch made")[0]
    span = Span(trainer.member.record.checkpoints[0].manifest_root, root)
    assert {(each["patches"], each["bytes"]) for each in fetched(caplog)} == {(1, made["bytes"])}
    assert made["bytes"] < relay.member.checkpoints.manifest(root).size / 10
    index = relay.member.patching.index
    await until(lambda: index.find(span) is not None, "the relay's word for the patch, after its last chunk is written")
    assert index.find(span) == trainer.member.patching.index.find(span)
    await relay.member.weights.evict()
    assert relay.member.checkpoints.complete(relay.member.patching.index.find(span) or root) is not None


async def test_the_patch_is_made_after_all_when_the_trainer_was_killed_before(build: Build, spec: RunSpec) -> None:
    network = await build(validators=1, spec=spec.model_copy(update={"max_steps": 2}))
    trainer = (await network.trainer(slow_learner(network))).go()
    root = await train_once(network, trainer)
    span = Span(trainer.member.record.checkpoints[0].manifest_root, root)
    await until(lambda: trainer.member.patching.index.find(span) is not None, "the patch")
    await trainer.stop()
    trainer.member.patching.index.drop(span)  # as if the kill had come sooner

    again = (await network.trainer(slow_learner(network))).go()

    await until(lambda: again.member.patching.index.find(span) is not None, "the patch")


async def test_anchors_have_no_patch(build: Build, spec: RunSpec) -> None:
    network = await build(validators=1, spec=spec.model_copy(update={"max_steps": 1}))
    trainer = await network.trainer(slow_learner(network))
    trainer.role.anchor_every = 1
    trainer.go()

    root = await train_once(network, trainer)
    await until(lambda: trainer.member.record.ended is not None, "the end, which comes after the patch")

    assert not trainer.member.patching.index.keep({trainer.member.record.checkpoints[0].manifest_root, root})
