"""What a person is told about a run, about own work, and about a file."""

from pathlib import Path

import pytest

from ledger.base import (
    UNDECIDED,
    Address,
    Block,
    Convicted,
    Digest,
    Reported,
    Run,
    RunId,
    State,
    Submitted,
    Version,
)
from node.config import Home
from node.errors import ConfigError, Malformed, NotFound
from node.queries import export_checkpoint, export_rollouts, read_record, read_rollouts, run_summary, status, why
from node.record import Record, Submission
from node.replay import verify_evidence
from node.roles.frauds import ForgedReward
from node.runspec import RunSpec
from node.runtime import EngineChoice
from node.terms import params_of
from tests.roles.network import TRAINER, Build
from tests.roles.stage import key, until


async def test_a_run_is_summed_up_with_its_terms_and_how_far_it_is(build: Build) -> None:
    network = await build(validators=1)
    await network.commit_honestly(await network.worker())
    summary = await run_summary(network.connect(key(9)), network.run)

    economics = network.spec.economics
    assert summary["submissions"] == {"submitted": 1}
    assert (summary["latest_version"], summary["max_steps"], summary["ended"]) == (0, 2, False)
    assert (summary["trainer"], summary["quorum"]) == (TRAINER.address, 1)
    assert int(summary["stake_per_node"]) == int(economics.penalty) + int(economics.submission_bond)
    assert int(summary["pot"]) + int(summary["reserved"]) > 0


async def test_own_work_is_listed_with_its_state_and_why(build: Build) -> None:
    network = await build(validators=1)
    await network.all_validators()
    worker = await network.worker(work=ForgedReward())
    wallet, node = Address(key(100).address), worker.member.account
    commitment = await network.commit_honestly(worker)
    reader = network.connect(key(9))
    (row,) = (await status(reader, network.run, wallet, node))["submissions"]
    due = (await reader.submission(network.run, commitment)).submitted_at + 12
    if row["state"] == "submitted":
        assert row["why"] == f"being checked; can be paid from block time {due}"
    await network.pass_time(8)
    assert await network.final(commitment) == State.VOIDED

    told = await status(reader, network.run, wallet, node)
    (row,) = told["submissions"]
    assert (row["state"], row["why"], row["reward"], row["slot"]) == ("voided", "void: reward", "0", 0)
    assert row["commitment"] == "0x" + commitment.hex()
    assert (told["authorised"], told["rewards"], told["locked"]) == (True, "0", "0")
    assert "submissions" not in await status(reader, network.run, wallet, None)


async def test_a_rollout_file_is_read_and_exported_by_its_name(build: Build, tmp_path: Path) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    path = worker.role.maker.intake.store.path(commitment)
    spec, record = await read_record(network.connect(key(9)), network.run)

    assert len(read_rollouts(spec, path)) == 4
    assert export_rollouts(spec, record, path, tmp_path / "out.parquet") == 4
    strange = tmp_path / ("ab" * 32 + ".rollouts")
    strange.write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="no commitment"):
        export_rollouts(spec, record, strange, tmp_path / "out.parquet")
    with pytest.raises(ConfigError, match="not named after a commitment"):
        export_rollouts(spec, record, tmp_path / "mine.rollouts", tmp_path / "out.parquet")
    with pytest.raises(NotFound, match="there is no file"):
        read_rollouts(spec, tmp_path / "missing")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rollouts(spec, tmp_path)
    strange.write_bytes(b"\0" * (1 << 20))
    with pytest.raises(Malformed):
        read_rollouts(spec, strange)


async def test_a_checkpoint_is_exported_from_peers_and_never_over_a_folder(build: Build, tmp_path: Path) -> None:
    network = await build(validators=1)
    await network.validator()
    reader, said = network.connect(key(9)), list[str]()
    target = tmp_path / "model"
    await export_checkpoint(reader, network.run, 0, target, Home(tmp_path / "home"), True, said.append)

    wanted = {path.name: path.read_bytes() for path in network.base.iterdir()}
    assert {path.name: path.read_bytes() for path in target.iterdir()} == wanted
    assert said
    with pytest.raises(ConfigError, match="exists: name a folder that does not"):
        await export_checkpoint(reader, network.run, 0, target, Home(tmp_path / "home"), True, said.append)
    with pytest.raises(ConfigError, match="version 3 is not published: the latest is 0"):
        await export_checkpoint(reader, network.run, 3, tmp_path / "m3", Home(tmp_path / "home"), True, said.append)


async def test_evidence_about_something_else_is_refused(build: Build, tmp_path: Path) -> None:
    network, other = await build(validators=1), await build(validators=1)
    (validator,) = await network.all_validators()
    await network.commit_honestly(await network.worker(work=ForgedReward()))
    await until(lambda: bool(validator.role.witness.exhibits.list()))
    (path,) = validator.role.witness.exhibits.list()
    home = Home(tmp_path / "home")

    async def verify(ledger: object, file: Path) -> None:
        await verify_evidence(ledger, file, home, True, EngineChoice("scripted"), lambda _: None)  # type: ignore[arg-type]

    await other.validator()
    with pytest.raises(Malformed, match="not on this chain"):
        await verify(other.connect(key(9)), path)
    with pytest.raises(ConfigError, match="cannot be read"):
        await verify(network.connect(key(9)), tmp_path / "missing")
    (tmp_path / "odd").write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ConfigError, match="no evidence file"):
        await verify(network.connect(key(9)), tmp_path / "odd")


BLOCK = Block(7, 70)
MADE = Submitted(
    BLOCK,
    RunId(1),
    Digest(bytes(32)),
    Address("0x" + "0a" * 20),
    Version(0),
    0,
    Digest(bytes(32)),
    5,
    Digest(bytes(32)),
)
REPORT = Reported(BLOCK, RunId(1), MADE.commitment, MADE.node, 3, 8, Digest(bytes(32)), 1)


@pytest.mark.parametrize(
    ("submission", "words"),
    [
        (Submission(MADE), "being checked; can be paid from block time 82"),  # 70 and both windows of 6
        (Submission(MADE, State.SETTLED), "accepted by a quorum and paid"),
        (Submission(MADE, State.FAULTED, reports=(REPORT,)), "reported: toploc on leaf 3"),
        (
            Submission(MADE, State.FAULTED, conviction=Convicted(BLOCK, RunId(1), MADE.commitment, 3, 8, 99)),
            "convicted; the slash can be executed from block time 99",
        ),
        (Submission(MADE, State.VOIDED, check=UNDECIDED), "void: undecided"),
        (Submission(MADE, State.EXPIRED), "no quorum decided in time: nothing paid, nothing lost"),
        (Submission(MADE, State.SLASHED, check=9), "slashed: sampling"),
    ],
)
def test_every_state_has_its_reason_in_words(spec: RunSpec, submission: Submission, words: str) -> None:
    params = params_of(spec, MADE.node, [MADE.node], 1)
    record = Record(Run(RunId(1), MADE.node, params, spec.encode(), spec.digest, 0))

    assert why(record, submission) == words
