"""Every fraud there is a name for is caught in one submission that is audited whole, and anybody can see why."""

import struct
from pathlib import Path
from typing import Any

import pytest

from ledger.base import WHOLE_FILE, Digest, State
from ledger.memory import MemoryLedger
from node.config import Home
from node.engines.choice import EngineChoice
from node.errors import ConfigError
from node.replay import verify_evidence
from node.roles.frauds import FRAUDS, workmanship
from tests.roles.network import Build, Network, Part
from tests.roles.stage import key, tar_pit, until


async def stake_of(network: Network, part: Part) -> int:
    return (await part.member.ledger.allocation(network.run, part.member.account)).amount


async def verified(network: Network, path: Path, tmp_path: Path) -> dict[str, Any]:
    """What a stranger finds who replays the evidence with weights fetched from the network."""
    stranger = MemoryLedger(network.chain, key(999))
    return await verify_evidence(
        stranger, path, Home(tmp_path / "stranger"), True, EngineChoice("scripted"), lambda _: None
    )


async def found_out(network: Network, commitment: Digest) -> None:
    """Waits until every validator has the file and has seen what is wrong, or the chain has been told already."""
    await until(
        lambda: (
            network.state(commitment).final
            or all(network.case(part, commitment).found(part.member.account) for part in network.parts[:2])
        )
    )


def evidence(part: Part) -> list[Path]:
    return part.role.witness.exhibits.list()


@pytest.mark.parametrize("fraud", ["other-model", "edited-tokens"])
async def test_a_fraud_that_only_the_model_can_see_is_slashed_with_evidence_that_holds(
    build: Build, tmp_path: Path, fraud: str
) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    cheat = await network.worker(work=workmanship(fraud))
    before = await stake_of(network, cheat)
    cheat.go()
    (submission,) = await network.committed()
    commitment = submission.made.commitment
    await network.confirmed(commitment)
    await network.audited(commitment)
    record = validators[0].member.record
    await until(lambda: record.submissions[commitment].conviction is not None)
    await network.pass_time(40)  # the window to contest, and everybody's turn

    assert await network.final(commitment) == State.SLASHED
    assert before - await stake_of(network, cheat) == int(network.spec.economics.penalty)
    for part in validators:
        (path,) = evidence(part)
        result = await verified(network, path, tmp_path)
        assert result["confirmed"], result
        assert result["claimed"]["check"] in {"TOPLOC", "SAMPLING"}


async def test_a_forged_reward_voids_pay_and_bond_with_evidence_that_holds(build: Build, tmp_path: Path) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    cheat = await network.worker(work=workmanship("forged-reward"))
    before = await stake_of(network, cheat)
    cheat.go()
    (submission,) = await network.committed()
    await found_out(network, submission.made.commitment)
    await network.pass_time(20)

    assert await network.final(submission.made.commitment) == State.VOIDED
    assert before - await stake_of(network, cheat) == int(network.spec.economics.submission_bond)
    await until(lambda: validators[0].member.record.is_final(submission.made.commitment))
    assert validators[0].member.record.submissions[submission.made.commitment].check == 6
    (path,) = evidence(validators[0])
    assert (await verified(network, path, tmp_path))["confirmed"]


async def test_a_beacon_that_is_not_the_chains_voids_only_the_bond(build: Build, tmp_path: Path) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    cheat = await network.worker()
    before = await stake_of(network, cheat)
    commitment = await network.commit_honestly(cheat, beacon=Digest(b"\x07" * 32))
    await found_out(network, commitment)
    await network.pass_time(20)

    assert await network.final(commitment) == State.VOIDED
    assert before - await stake_of(network, cheat) == int(network.spec.economics.submission_bond)
    (path,) = evidence(validators[0])
    result = await verified(network, path, tmp_path)
    assert result["confirmed"]
    assert result["found"] == {"check": "WITHHELD", "leaf": WHOLE_FILE, "measured": "07" * 32}


async def test_a_file_that_nobody_can_get_is_void_when_validators_were_there_all_the_time(build: Build) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    cheat = await network.worker()
    commitment = await network.commit_honestly(cheat, serve=False)
    await network.pass_time(10)
    assert all(not network.case(part, commitment).faults for part in validators)  # not before it is due

    await network.pass_time(26)

    assert await network.final(commitment) == State.VOIDED
    record = validators[0].member.record
    await until(lambda: record.is_final(commitment))
    assert record.submissions[commitment].check == 0


async def test_a_validator_that_was_away_does_not_call_a_file_withheld(build: Build) -> None:
    network = await build(validators=1)
    cheat = await network.worker()
    commitment = await network.commit_honestly(cheat, serve=False)
    (validator,) = await network.all_validators()
    await network.pass_time(40)

    assert network.state(commitment) == State.SUBMITTED
    assert not network.case(validator, commitment).faults
    await network.pass_time(100)  # nobody decides: it expires, and nobody is charged
    assert await network.final(commitment) == State.EXPIRED


async def test_a_file_that_fits_its_root_and_does_not_parse_is_void_and_holds_up_no_other(
    build: Build, tmp_path: Path
) -> None:
    network = await build(validators=2)
    validators = await network.all_validators()
    cheat = await network.worker(200)
    garbage = b"".join(struct.pack("<I", 100) + bytes([0, row]) + b"\xff" * 98 for row in range(4))
    bad = await network.commit(cheat, await network.assignment(cheat), garbage, units=5)
    honest = await network.commit_honestly(await network.worker(300))

    await until(lambda: all(len(network.case(part, honest).haves) == 2 for part in validators))
    await network.audited(honest)
    assert await network.settled(honest) == State.SETTLED
    assert await network.final(bad) == State.VOIDED
    record = validators[0].member.record
    await until(lambda: record.is_final(bad))
    assert record.submissions[bad].check == 1
    (path,) = evidence(validators[0])
    assert (await verified(network, path, tmp_path))["confirmed"]


async def test_a_worker_that_never_answers_holds_up_no_other(build: Build) -> None:
    network = await build(validators=2)
    await network.all_validators()
    pit = await network.worker(200)
    async with tar_pit() as url:
        await pit.member.ledger.set_endpoint(url)
        stuck = await network.commit_honestly(pit, serve=False)
        honest = await network.commit_honestly(await network.worker(300))

        await until(lambda: all(len(network.case(part, honest).haves) == 2 for part in network.parts[:2]))
        await network.audited(honest)
        assert await network.settled(honest) == State.SETTLED
        assert network.state(stuck) != State.SETTLED
        await network.stop()


def test_a_fraud_without_a_name_is_refused() -> None:
    assert set(FRAUDS) == {"other-model", "edited-tokens", "forged-reward"}
    with pytest.raises(ConfigError, match="choose one of other-model, edited-tokens, forged-reward"):
        workmanship("bribery")
