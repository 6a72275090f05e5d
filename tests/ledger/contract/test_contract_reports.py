"""Every ledger: reports of faults, their votes, and what becomes of the submission."""

from dataclasses import replace

import pytest
from eth_account import Account

from ledger.base import WHOLE_FILE, Convicted, Reported, RunId, SlashExecuted, State, Voided
from ledger.errors import Reverted
from ledger.messages import sign
from tests.ledger.contract.scene import BOND, DUE, EVIDENCE, PENALTY, POT, STAKE, WINDOWS, Scene, said


async def test_a_fault_by_a_stranger_or_of_another_run_or_check_is_refused(scene: Scene) -> None:
    commitment, stranger = await scene.submit(), Account.create()
    fault, signer = scene.fault(commitment, 8), scene.validators[0]
    other = replace(fault, run=RunId(scene.run + 1))

    with pytest.raises(Reverted) as unknown_signer:
        await scene.owner.report(scene.run, [fault], [sign(stranger, scene.domain, fault)])
    with pytest.raises(Reverted) as another_run:
        await scene.owner.report(scene.run, [other], [sign(signer, scene.domain, other)])
    for check in (5, 11, 255):
        with pytest.raises(Reverted) as unknown_check:
            await scene.report(commitment, check, [0, 1])
        assert said(unknown_check) == ("UnknownCheck", {"check": check})
    with pytest.raises(Reverted) as lengths:
        await scene.owner.report(scene.run, [fault], [])

    assert said(unknown_signer) == ("NotValidator", {"signer": stranger.address})
    assert said(another_run) == ("WrongRun", {"expected": scene.run, "actual": scene.run + 1})
    assert said(lengths) == ("LengthMismatch", {"left": 1, "right": 0})
    assert await scene.state(commitment) == State.SUBMITTED


async def test_one_fault_freezes_and_a_validator_votes_once_a_leaf(scene: Scene) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, 8, [0])
    await scene.report(commitment, 9, [0])
    await scene.world.advance(DUE)
    await scene.settle(commitment)

    (reported,) = await scene.events(Reported)
    validator = scene.validators[0].address
    assert reported == Reported(reported.block, scene.run, commitment, validator, 1, 8, EVIDENCE, 1)
    assert await scene.state(commitment) == State.FAULTED
    assert await scene.events(Convicted) == []


async def test_a_quorum_of_faults_is_executed_only_after_the_contest_window(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 8, [0], leaf=WHOLE_FILE)
    await scene.report(commitment, 9, [2], leaf=WHOLE_FILE)
    (convicted,) = await scene.events(Convicted)
    executable_at = convicted.block.time + WINDOWS.contest
    assert convicted == Convicted(convicted.block, scene.run, commitment, WHOLE_FILE, 9, executable_at)

    await scene.owner.conclude(scene.run, [commitment])
    early = await scene.state(commitment)
    await scene.world.advance(WINDOWS.contest)
    receipt = await scene.provider.conclude(scene.run, [commitment])

    assert (early, await scene.state(commitment)) == (State.FAULTED, State.SLASHED)
    node = scene.node.account
    assert await scene.events(SlashExecuted) == [
        SlashExecuted(receipt.block, scene.run, commitment, node, PENALTY, receipt.transaction)
    ]
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE - PENALTY, 0))


async def test_faults_on_two_leaves_are_no_quorum(scene: Scene) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, 8, [0], leaf=1)
    await scene.report(commitment, 8, [1], leaf=2)

    assert await scene.events(Convicted) == []
    assert [event.count for event in await scene.events(Reported)] == [1, 1]


async def test_a_frozen_submission_without_a_quorum_is_voided_with_its_bonds_back(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 9, [0])
    await scene.world.advance(DUE)

    await scene.owner.conclude(scene.run, [commitment])
    early = await scene.state(commitment)
    await scene.world.advance(WINDOWS.confirm + 1)
    await scene.report(commitment, 9, [1])  # too late for the leaf
    await scene.owner.conclude(scene.run, [commitment])

    (voided,) = await scene.events(Voided)
    assert early == State.FAULTED  # until `confirm` after its audit is due
    assert voided == Voided(voided.block, scene.run, commitment, 255, 0)
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE, 0))


async def test_a_report_at_once_does_not_close_its_leaf_before_the_others_have_audited_it(scene: Scene) -> None:
    commitment = await scene.submit()
    await scene.report(commitment, 8, [0])  # by an accomplice of the node
    await scene.world.advance(DUE)

    await scene.owner.conclude(scene.run, [commitment])
    await scene.report(commitment, 8, [1])
    (convicted,) = await scene.events(Convicted)
    await scene.world.advance(WINDOWS.contest)
    await scene.owner.conclude(scene.run, [commitment])

    reported = await scene.events(Reported)
    assert [event.count for event in reported] == [1, 2]
    assert reported[1].block.time - reported[0].block.time > WINDOWS.confirm
    assert convicted.executable_at == reported[1].block.time + WINDOWS.contest
    assert await scene.state(commitment) == State.SLASHED


@pytest.mark.parametrize("check", [0, 6, 10])
async def test_a_quorum_on_a_cheap_check_burns_the_submission_bond_alone(scene: Scene, check: int) -> None:
    commitment = await scene.submit()

    await scene.report(commitment, check, [0, 1])

    (voided,) = await scene.events(Voided)
    assert voided == Voided(voided.block, scene.run, commitment, check, BOND)
    assert await scene.state(commitment) == State.VOIDED
    assert (await scene.pot(), await scene.allocation()) == ((POT, 0, 0), (STAKE - BOND, 0))


async def test_a_cheap_check_needs_its_quorum_in_one_report_signers_ascending(scene: Scene) -> None:
    commitment = await scene.submit()

    with pytest.raises(Reverted) as lone:
        await scene.report(commitment, 6, [0])
    with pytest.raises(Reverted, match="SignersNotAscending"):
        await scene.report(commitment, 6, [1, 0])

    assert said(lone) == ("QuorumNotReached", {"signatures": 1, "quorum": 2})
    assert await scene.state(commitment) == State.SUBMITTED


async def test_one_bad_entry_of_a_report_undoes_all_of_it(scene: Scene) -> None:
    commitment = await scene.submit()
    good, bad = scene.fault(commitment, 8), scene.fault(commitment, 8, leaf=2)
    signatures = [sign(scene.validators[0], scene.domain, good), sign(Account.create(), scene.domain, bad)]

    with pytest.raises(Reverted, match="NotValidator"):
        await scene.owner.report(scene.run, [good, bad], signatures)

    assert await scene.state(commitment) == State.SUBMITTED
