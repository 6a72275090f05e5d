"""A worker that is killed between making a file and handing it over loses nothing and makes nothing twice."""

from pathlib import Path
from typing import Any

from ledger.base import State, Version
from node.models.tiny import build_tiny
from tests.roles.network import TRAINER, Build, breaking, files
from tests.roles.stage import Killed, Watched, until


async def test_the_file_is_on_disk_when_the_commitment_is_sent(build: Build) -> None:
    network = await build(validators=1)
    plain, seen = network.connect, []

    def look(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "submit":
            seen.append((arguments[3], [worker.role.maker.intake.store.get(name) for name in files(worker)]))

    network.connect = lambda account: Watched(plain(account), before=look)  # type: ignore[arg-type,assignment]
    worker = await network.worker()
    worker.go()
    (submission,) = await network.committed()

    ((root, stored),) = seen
    assert root == submission.made.root
    assert stored == [worker.role.maker.intake.store.get(submission.made.commitment)]


async def test_the_same_file_is_committed_and_nothing_made_again_after_a_kill_before_the_submission(
    build: Build,
) -> None:
    network = await build(validators=1)
    plain = network.connect
    breaking(network, "before", Killed())
    engine = network.engine()
    killed = (await network.worker(engine=engine)).go()
    await until(lambda: killed.finished)
    (left_behind,) = files(killed)
    await killed.stop()

    network.connect, again = plain, network.engine()
    (await network.worker(engine=again)).go()
    record = network.parts[-1].member.record
    await until(lambda: len(record.submissions) == 1)

    assert list(record.submissions) == [left_behind]
    assert (engine.generated, again.generated) == (1, 0)


async def test_a_file_of_an_older_version_goes_to_the_chain_when_a_kill_kept_it_from_there(
    build: Build, tmp_path: Path
) -> None:
    network = await build(validators=1)
    plain = network.connect
    breaking(network, "before", Killed())
    killed = (await network.worker()).go()
    await until(lambda: killed.finished)
    (left_behind,) = files(killed)
    await killed.stop()

    network.connect = plain
    again = await network.worker()
    build_tiny(tmp_path / "version-1", seed=1)
    root = again.member.checkpoints.add(tmp_path / "version-1")
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), root)
    again.go()
    record = again.member.record
    await until(lambda: len(record.submissions) == 1)
    (submission,) = record.submissions.values()

    assert (submission.made.commitment, submission.made.version) == (left_behind, 0)
    assert again.member.record.latest == 1


async def test_a_finished_file_is_submitted_and_paid_when_the_run_ended_meanwhile(build: Build) -> None:
    network = await build(validators=1)
    plain = network.connect
    breaking(network, "before", Killed())
    killed = (await network.worker()).go()
    await until(lambda: killed.finished)
    (left_behind,) = files(killed)
    await killed.stop()
    await network.all_validators()
    await network.end_run()

    network.connect = plain
    record = (await network.worker()).go().member.record
    await until(lambda: left_behind in record.submissions)

    assert await network.live(left_behind) == State.SETTLED


async def test_the_file_is_handed_over_after_a_kill_between_submission_and_push(build: Build) -> None:
    network = await build(validators=1)
    plain = network.connect
    breaking(network, "after", Killed())
    killed = (await network.worker()).go()
    await until(lambda: killed.finished)
    (commitment,) = files(killed)
    await killed.stop()
    assert network.state(commitment) == State.SUBMITTED

    network.connect = plain
    validator = await network.validator()  # answers and does not work: it does not fetch by itself
    await validator.member.sync()
    (await network.worker()).go()

    await until(lambda: validator.role.intake.holds(commitment))
