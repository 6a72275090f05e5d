"""What a validator gives back and deletes once a submission is final, and when it leaves."""

from ledger.base import State
from node.roles.frauds import OtherModel
from tests.roles.network import Build
from tests.roles.stage import until


async def test_memory_of_a_submission_is_given_back_when_it_is_final(build: Build) -> None:
    network = await build(validators=2)
    parts = await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    assert await network.live(commitment) == State.SETTLED

    for part in parts:
        role = part.role
        await until(lambda role=role: not role.casebook.cases)  # type: ignore[misc]
        assert not (role.auditor.draws or role.auditor.cheap_verdicts or role.auditor.judged or role.auditor.clean)
        assert not (role.examiner.known() or role.closer.known() or role.inquired or part.member.versions.wanted)
        assert len(await part.mailbox.verdicts(commitment)) == 4  # from the disk: others may still ask
        assert not role.casebook.cases


async def test_files_cases_and_evidence_are_deleted_a_day_after_the_last_window_and_not_before(build: Build) -> None:
    network = await build(validators=2)
    await network.all_validators()
    cheat = await network.worker(work=OtherModel())
    commitment = await network.commit_honestly(cheat)
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.pass_time(40)
    assert await network.final(commitment) == State.SLASHED
    part = network.parts[0]
    await until(lambda: part.member.record.is_final(commitment))

    def kept() -> tuple[int, int, int]:
        role = part.role
        return len(role.intake.store.list()), len(role.casebook.on_disk()), len(role.witness.exhibits.list())

    async def pruned() -> None:
        await part.stop()
        await part.stop()
        again = (await network.validator()).go()
        await until(lambda: again.role.pruned > 0)
        await again.stop()

    concluded = part.member.record.submissions[commitment].concluded
    assert concluded is not None
    network.chain.mine(concluded.time + 8 + 86_400 - 30 - network.chain.head.time)  # contest 8 s, no panel, a day
    await pruned()
    assert kept() == (1, 1, 1)
    network.chain.mine(30)
    await pruned()
    assert kept() == (0, 0, 0)


async def test_a_validator_leaves_when_the_run_is_over_and_the_grace_for_late_work_too(build: Build) -> None:
    network = await build(validators=1)
    (validator,) = await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    assert await network.live(commitment) == State.SETTLED
    await network.end_run()
    assert not validator.finished
    await network.pass_time(network.spec.windows.grace)

    await until(lambda: validator.finished)
    assert validator.task is not None and validator.task.exception() is None
