// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {IStaking} from "../../src/interfaces/IStaking.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

contract SubmitTest is NetworkFixture {
    function test_RevertsForAnUnknownRun() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 9));
        VM.prank(node);
        coordinator.submit(9, 0, 0, ROOT, UNITS, BEACON);
    }

    function test_RevertsForAKeyThatWorksForNobody() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NodeNotAuthorized.selector, STRANGER));
        VM.prank(STRANGER);
        coordinator.submit(run, 0, 0, ROOT, UNITS, BEACON);
    }

    function test_RevertsForARevokedNode() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NodeNotAuthorized.selector, node));
        submit(0);
    }

    function test_RevertsWhileNothingIsPublished() public {
        run = createRunAs(OWNER, params());
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionNotOpen.selector, 0, 0));
        submit(0);
    }

    function test_RevertsForAVersionThatIsNotPublished() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionNotOpen.selector, 1, 0));
        submitUnits(1, 0, UNITS);
    }

    function test_RevertsOnTheSameCommitmentAgain() public {
        bytes32 commitment = submit(0);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.AlreadySubmitted.selector, commitment));
        submit(0);
    }

    function test_RevertsOnAnotherFileForATakenSlot() public {
        submit(0);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.SlotMismatch.selector, 0, 1));
        submitUnits(0, 0, UNITS - 1);
    }

    function test_RevertsOnASkippedSlot() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.SlotMismatch.selector, 1, 0));
        submit(1);
    }

    function test_RevertsForAnEarlierVersionThanTheNodeHasCommittedIn() public {
        VM.warp(START + 10);
        publish(1);
        submitUnits(1, 0, UNITS);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionBehind.selector, 0, 1));
        submit(0);
    }

    function test_RevertsWithoutUnits() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.InvalidUnits.selector, 0, 500));
        submitUnits(0, 0, 0);
    }

    function test_RevertsOnMoreUnitsThanAFileCanHave() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.InvalidUnits.selector, 501, 500));
        submitUnits(0, 0, 501);
    }

    function test_RevertsWithAsManyOpenAsTheRunPermits() public {
        for (uint64 slot = 0; slot < 6; ++slot) {
            submit(slot);
        }
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.TooManyOpen.selector, 6, 6));
        submit(6);
    }

    function test_RevertsWhenThePotCannotPay() public {
        IRunCoordinator.RunParams memory p = params();
        p.pricePerUnit = 251;
        run = createRunAs(OWNER, p);
        fundRun(100_000);
        publish(0);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.PotTooSmall.selector, 100_400, 100_000));
        submit(0);
    }

    function test_RevertsWhenThePriceIsBeyondAllTokens() public {
        IRunCoordinator.RunParams memory p = params();
        p.pricePerUnit = type(uint128).max;
        run = createRunAs(OWNER, p);
        publish(0);
        uint256 wanted = 400 * uint256(type(uint128).max);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.PotTooSmall.selector, wanted, 0));
        submit(0);
    }

    function test_RevertsWhenTheAllocationDoesNotCoverPenaltyAndBond() public {
        VM.prank(PROVIDER);
        staking.unstake(run, node, STAKE - 1049);
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 1050, 1049));
        submit(0);
    }

    function test_RevertsAfterTheGraceOfAnEndedRun() public {
        VM.prank(OWNER);
        coordinator.endRun(run);
        VM.warp(START + GRACE + 1);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunIsEnded.selector, run));
        submit(0);
    }

    function test_CommitsReservesAndLocks() public {
        bytes32 expected = keccak256(
            abi.encode(
                bytes32("in/commitment/1"),
                block.chainid,
                address(coordinator),
                run,
                node,
                uint256(0),
                uint256(0),
                ROOT,
                uint256(UNITS),
                BEACON
            )
        );
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Submitted(run, expected, node, 0, 0, ROOT, UNITS, BEACON);
        assertEq(submit(0), expected);

        (address node_, uint40 submittedAt, uint40 units, IRunCoordinator.State state) =
            coordinator.submission(run, expected);
        assertEq(node_, node);
        assertEq(submittedAt, START);
        assertEq(units, UNITS);
        assertEq(uint256(state), uint256(IRunCoordinator.State.Submitted));
        assertPot(POT - PAY, PAY, 1);
        assertStake(STAKE, 1050);
    }

    function test_CountsSlotsPerVersionAndNode() public {
        submit(0);
        submit(1);
        VM.warp(START + 10);
        publish(1);
        submitUnits(1, 0, UNITS);

        assertEq(coordinator.slots(run, 0, node), 2);
        assertEq(coordinator.slots(run, 1, node), 1);
        assertEq(coordinator.slots(run, 0, STRANGER), 0);
        assertEq(coordinator.openOf(run, node), 3);
    }

    function test_WorksDuringTheGraceOfAnEndedRun() public {
        VM.prank(OWNER);
        coordinator.endRun(run);
        VM.warp(START + GRACE);
        assertState(submit(0), IRunCoordinator.State.Submitted);
    }
}

/// @dev asyncLevel is 1, so version 0 leaves the window when version 2 is published.
contract SubmitVersionWindowTest is NetworkFixture {
    function setUp() public override {
        super.setUp();
        VM.warp(START + 10);
        publish(1);
    }

    function test_IsOpenWhileAtMostAsyncLevelBehind() public {
        VM.warp(START + 10_000);
        assertState(submit(0), IRunCoordinator.State.Submitted);
    }

    function test_StaysOpenForGraceAfterLeavingTheWindow() public {
        VM.warp(START + 20);
        publish(2);
        VM.warp(START + 20 + GRACE);
        assertState(submit(0), IRunCoordinator.State.Submitted);
    }

    function test_GraceCountsFromTheVersionThatClosedIt() public {
        VM.warp(START + 20);
        publish(2);
        VM.warp(START + 20 + GRACE);
        publish(3);
        VM.warp(START + 21 + GRACE);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionNotOpen.selector, 0, 3));
        submit(0);
        assertState(submitUnits(1, 0, UNITS), IRunCoordinator.State.Submitted);
    }
}
