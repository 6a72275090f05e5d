"""Honest work is never rejected: many seeds of a real model through engine and checks, and whole tiny networks."""

import hashlib
from pathlib import Path

import pytest

from ledger.base import Address, Digest, Ledger, RunId, Version
from ledger.connection import open_ledger
from node.checks.base import cheap, deep
from node.checks.subject import Claim, Subject
from node.devnet.network import Show, play
from node.engines.transformers import TransformersEngine
from node.launch import Plan, build_spec
from node.membership import policy_of, tasks_of
from node.models.resolve import resolve
from node.rollouts.assignment import assign, file_units
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.tasks.taskset import Taskset
from node.verdicts import Accepted

SEEDS = 20
CONTRACT = Address("0x" + "11" * 20)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base() -> Path:
    return resolve("smollm2", print)


@pytest.fixture(scope="module")
def spec(base: Path) -> RunSpec:
    return build_spec("smollm2", base, Plan("honest"))


@pytest.fixture(scope="module")
def tasks(spec: RunSpec, base: Path) -> Taskset:
    return tasks_of(spec, base)


@pytest.fixture(scope="module")
def engine(spec: RunSpec, base: Path) -> TransformersEngine:
    engine = TransformersEngine(policy_of(spec), threads=None)
    engine.load(base)
    return engine


@pytest.mark.parametrize("number", range(SEEDS))
def test_honest_rollouts_of_a_real_model_pass_every_check(
    spec: RunSpec, tasks: Taskset, engine: TransformersEngine, number: int
) -> None:
    beacon = Digest(hashlib.sha256(f"beacon {number}".encode()).digest())
    root = Digest(bytes.fromhex(spec.model.manifest_root))
    node = Address("0x" + f"{number + 1:040x}")
    run, version = RunId(0), Version(0)
    task = assign(spec, 31337, CONTRACT, run, spec.digest, version, root, node, number, beacon)
    prompts = [tasks.item(item).prompt_ids for item in task.items]
    samples = engine.generate(task.seed, prompts, lambda done, total: None)
    size = spec.slot.group_size
    rollouts = tuple(
        Rollout(
            row // size, row % size, prompts[row // size], sample.output_ids, sample.logprobs, sample.proofs,
            sample.finish, tasks.score(task.items[row // size], sample.output_ids, sample.finish),
        )
        for row, sample in enumerate(samples)
    )  # fmt: skip
    claim = Claim(
        31337, CONTRACT, run, spec.digest, root, node, version, number, root_of(rollouts), file_units(rollouts, spec),
        beacon,
    )  # fmt: skip
    subject = Subject(spec, claim, rollouts, tasks)

    replays = engine.replay(subject.seed, rollouts, lambda done, total: None)

    assert isinstance(cheap(subject), Accepted)
    assert isinstance(deep(subject, dict(enumerate(replays))), Accepted)


def root_of(rollouts: tuple[Rollout, ...]) -> Digest:
    from hashing.merkle import leaf_hash, root
    from node.rollouts.file import preimage

    return Digest(root([leaf_hash(preimage(r, row, len(rollouts))) for row, r in enumerate(rollouts)]))


async def connect(rpc_url: str, deployment: Path) -> Ledger:
    return await open_ledger([rpc_url], deployment, None, None)


@pytest.mark.parametrize("number", range(SEEDS))
async def test_every_submission_of_an_honest_network_is_paid(tmp_path: Path, number: int) -> None:
    """Keys, and so seeds, differ from network to network."""
    show = Show(tmp_path, "tiny", cheat=None, steps=2, held_out_samples=0, seconds=240)

    report = await play(show, connect, lambda line: None)

    assert report.failures == []
    assert set(report.summary["states"]) == {"settled"}
