"""Killed at any instruction, every role goes on: nothing is done twice, and nothing that was done is lost.

Real processes on a real chain, killed by SIGKILL at the points of `points`, most of them soon after they came back from
the kill before.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from eth_abi.abi import decode

from benchmarks.random_kills.opening import journalled
from ledger.base import Address, Digest, State
from ledger.journal import Stage
from node.roles.gas import GAS_TOP_UP_WEI
from node.roles.registration import stake_per_node
from node.rollouts.file import decode_file
from node.shards.manifest import build
from node.training.batch import GroupId, TrainingGroup
from node.training.hyper import SMOLLM2
from node.training.step import Learner
from tests.kills.campaign import LEARNING_RATE, STEPS, Campaign, survived
from tests.kills.points import ALL, Point
from tests.kills.remains import consumed, files, findings, said

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return asyncio.run(survived(tmp_path_factory.mktemp("kills")))


def committed(campaign: Campaign) -> set[str]:
    return {commitment.hex() for commitment in campaign.record.submissions}


@pytest.mark.parametrize("point", ALL, ids=lambda point: point.name)
def test_what_was_done_before_a_kill_is_there_after_it(campaign: Campaign, point: Point) -> None:
    left = campaign.remains[point]
    home = campaign[left.name].home

    assert left.died, left.log
    if point.role == "join":
        assert left.files <= committed(campaign)
        assert left.signed <= committed(campaign)
    assert left.said <= said(home)
    assert left.step <= len(campaign.record.checkpoints) - 1


def test_everybody_leaves_by_itself_when_the_run_is_over(campaign: Campaign) -> None:
    assert campaign.codes == {"trainer": 0, "worker": 0, "validator-1": 0, "validator-2": 0}


def test_every_finished_file_of_the_honest_worker_is_committed_and_paid(campaign: Campaign) -> None:
    worker = campaign["worker"]
    own = campaign.status["submissions"]
    paid = sum(int(row["reward"]) for row in own)
    provider = Address(worker.address)

    assert files(worker.home) == {row["commitment"].removeprefix("0x") for row in own}
    assert {row["state"] for row in own} == {"settled"}
    assert [s.state for s in campaign.record.submissions.values() if s.made.node == worker.node and not s.reward] == []
    assert sum(claim.amount for claim in campaign.record.claims if claim.provider == provider) == paid
    assert (campaign.status["rewards"], campaign.status["tokens"]) == ("0", str(paid))


def test_no_slot_has_two_commitments_and_nothing_was_signed_twice(campaign: Campaign) -> None:
    slots = Counter((s.made.node, s.made.version, s.made.slot) for s in campaign.record.submissions.values())
    signed = Counter(entry.claim.slot for entry in journalled(campaign["worker"].home) if entry.claim)

    assert set(slots.values()) == {1}
    assert set(signed.values()) == {1}


@pytest.mark.parametrize("name", ["trainer", "worker", "validator-1", "validator-2", "relay"])
def test_no_transaction_took_effect_twice_and_none_is_forgotten(campaign: Campaign, name: str) -> None:
    journal = journalled(campaign[name].home)
    mined = Counter((entry.what, entry.data) for entry in journal if entry.stage is Stage.MINED)

    # An address may be announced twice: whoever came back sooner than a block could not know that it was.
    repeated = [(what, data, times) for (what, data), times in mined.items() if times > 1 and what != "setEndpoint"]
    assert [what for what, data, times in repeated if what != "settle" or times > parts(campaign, data)] == []
    assert [entry.what for entry in journal if entry.stage is Stage.SENT] == []


def parts(campaign: Campaign, settle: bytes) -> int:
    """In how many blocks the entries of a `settle` were settled: one list may come due in parts."""
    _, commitments, _ = decode(["uint256", "bytes32[]", "bytes[]"], settle[4:])
    found = (campaign.record.submissions[Digest(commitment)] for commitment in commitments)
    return len({one.concluded.number for one in found if one.state is State.SETTLED and one.concluded})


def test_registering_gave_stake_and_gas_exactly_once(campaign: Campaign) -> None:
    status, wanted = campaign.status, stake_per_node(campaign.record.run.params)
    what = Counter(entry.what for entry in journalled(campaign["worker"].home))

    assert (status["allocated"], status["locked"], status["free_stake"]) == (str(wanted), "0", "0")
    assert int(status["node_gas_wei"]) <= GAS_TOP_UP_WEI
    assert [what[each] for each in ("transfer", "authorizeNode", "faucet", "approve", "stake", "allocate")] == [1] * 6


def test_fraud_is_slashed_whoever_was_killed_meanwhile(campaign: Campaign) -> None:
    cheater = campaign["cheater"].node
    states = Counter(s.state for s in campaign.record.submissions.values() if s.made.node == cheater)

    assert states[State.SLASHED] > 0
    assert states[State.SETTLED] == 0


@pytest.mark.parametrize("name", ["validator-1", "validator-2"])
def test_no_finding_is_written_down_twice(campaign: Campaign, name: str) -> None:
    lying, named = findings(campaign[name].home)

    assert lying
    assert lying <= named


def test_training_ends_with_the_weights_of_an_undisturbed_run(campaign: Campaign, tmp_path: Path) -> None:
    home = campaign["trainer"].home
    steps = [campaign.first_step, consumed(home, STEPS) - campaign.first_step]
    roots = [checkpoint.manifest_root for checkpoint in campaign.record.checkpoints]
    hyper = replace(SMOLLM2, learning_rate=LEARNING_RATE)  # that of a model without a preset
    learner = Learner(campaign.base, hyper, campaign.spec.sampling.temperature, 1)

    undisturbed = [build(campaign.base).root]
    for place, groups in enumerate(steps):
        learner.step(batch(campaign, groups), lambda done, total: None)
        learner.export(tmp_path / str(place))
        undisturbed.append(build(tmp_path / str(place)).root)

    assert [len(groups) for groups in steps] == [4, 4]
    assert len(set(roots)) == STEPS + 1
    assert roots == undisturbed


def batch(campaign: Campaign, ids: frozenset[GroupId]) -> list[TrainingGroup]:
    """The groups of `ids` in the order that a trainer takes: newest version first, then by name."""
    groups = [group(campaign, each) for each in ids]
    return sorted(groups, key=lambda one: (-one.version, one.commitment, one.group))


def group(campaign: Campaign, which: GroupId) -> TrainingGroup:
    """One prompt's rollouts, from the worker's own file; its rewards are what validators found right."""
    made = campaign.record.submissions[which.commitment].made
    (path,) = campaign["worker"].home.glob(f"runs/*/*/rollouts/{which.commitment.hex()}.rollouts")
    rows = [row for row in decode_file(path.read_bytes(), campaign.spec) if row.group == which.group]
    rewards = tuple(row.reward for row in rows)
    return TrainingGroup(made.commitment, made.node, made.version, which.group, tuple(rows), rewards)
