"""What a person is told about a run, about own work, and about a file."""

from pathlib import Path

import pytest

from node.config import Home
from node.engines.choice import EngineChoice
from node.errors import ConfigError, Malformed
from node.exports import export_checkpoint
from node.queries import export_rollouts, read_record, read_rollouts, run_summary
from node.replay import verify_evidence
from node.roles.frauds import ForgedReward
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
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1  # of the last leaf's reward: a file of the run, and not the one
    path.write_bytes(changed)
    with pytest.raises(ConfigError, match="not the file that was committed to"):
        export_rollouts(spec, record, path, tmp_path / "out.parquet")
    with pytest.raises(ConfigError, match="missing cannot be read: No such file"):
        read_rollouts(spec, tmp_path / "missing")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rollouts(spec, tmp_path)
    strange.write_bytes(b"\0" * (1 << 20))
    with pytest.raises(ConfigError, match="is no rollout file of this run: "):
        read_rollouts(spec, strange)


async def test_a_checkpoint_is_exported_from_peers_and_never_over_a_folder(build: Build, tmp_path: Path) -> None:
    network = await build(validators=1)
    await network.validator()
    reader, said = network.connect(key(9)), list[str]()
    target = tmp_path / "model"
    await export_checkpoint(reader, network.run, 0, target, Home(tmp_path / "home"), True, said.append)

    wanted = {path.name: path.read_bytes() for path in network.base.iterdir()}
    assert {path.name: path.read_bytes() for path in target.iterdir()} == wanted
    assert said[0] == "version 0: nodes that may hold it: 1"
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
