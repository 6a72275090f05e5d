// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {IStaking} from "../../src/interfaces/IStaking.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

contract ConcludeTest is NetworkFixture {
    bytes32 private commitment;

    function setUp() public override {
        super.setUp();
        commitment = submit(0);
    }

    function test_RevertsForAnUnknownRun() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 9));
        coordinator.conclude(9, listOf(commitment));
    }

    function test_RevertsOnAnEmptyList() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 0));
        coordinator.conclude(run, new bytes32[](0));
    }

    function test_RevertsOver64Entries() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 65));
        coordinator.conclude(run, new bytes32[](65));
    }

    function test_SkipsWhatIsNotDue() public {
        VM.warp(START + SETTLE_BY);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Submitted);
    }

    function test_SkipsWhatNobodyCommitted() public {
        conclude(ROOT);

        assertState(ROOT, IRunCoordinator.State.None);
    }

    function test_ExpiryGivesEverythingBack() public {
        VM.warp(START + SETTLE_BY + 1);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Expired(run, commitment);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Expired);
        assertPot(POT, 0, 0);
        assertStake(STAKE, 0);
        assertEq(coordinator.openOf(run, node), 0);
    }

    function test_ReleasesOnceHoweverOftenItIsNamed() public {
        submit(1);
        VM.warp(START + SETTLE_BY + 1);
        bytes32[] memory twice = new bytes32[](2);
        (twice[0], twice[1]) = (commitment, commitment);
        coordinator.conclude(run, twice);
        conclude(commitment);

        assertPot(POT - PAY, PAY, 1);
        assertStake(STAKE, 1050);
    }

    function test_WhatIsFrozenDoesNotExpire() public {
        VM.warp(START + SETTLE_BY);
        reportBy(0, 1, commitment, 5, 8);
        VM.warp(START + SETTLE_BY + CONFIRM);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Faulted);
    }

    function test_WhatStaysUndecidedIsVoidAndCostsNothing() public {
        VM.warp(START + DUE);
        reportBy(0, 2, commitment, 5, 8);
        VM.warp(START + DUE + CONFIRM + 1);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Voided(run, commitment, 255, 0);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Voided);
        assertPot(POT, 0, 0);
        assertStake(STAKE, 0);
    }

    function test_TheLatestLeafHasItsWholeWindow() public {
        VM.warp(START + DUE);
        reportBy(0, 1, commitment, 5, 8);
        VM.warp(START + DUE + CONFIRM);
        reportBy(1, 1, commitment, 6, 8);
        VM.warp(START + DUE + 2 * CONFIRM);
        conclude(commitment);
        assertState(commitment, IRunCoordinator.State.Faulted);
        reportBy(2, 2, commitment, 6, 8);

        assertLeaf(commitment, 6, START + DUE + CONFIRM, 3, START + DUE + 2 * CONFIRM + CONTEST);
    }

    function test_AConvictionOutlivesTheWindowOfItsLeaf() public {
        VM.warp(START + DUE);
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + DUE + CONTEST - 1);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Faulted);
        assertStake(STAKE, 1050);
    }

    function test_ASlashBurnsThePenaltyAfterTheContest() public {
        VM.warp(START + DUE);
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + DUE + CONTEST);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.SlashExecuted(run, commitment, node, PENALTY);
        VM.expectEmit(address(staking));
        emit IStaking.Slashed(PROVIDER, run, node, PENALTY);
        conclude(commitment);

        assertState(commitment, IRunCoordinator.State.Slashed);
        assertStake(STAKE - PENALTY, 0);
        assertPot(POT, 0, 0);
        assertEq(token.totalSupply(), POT + STAKE - PENALTY);
    }

    function test_ASlashHappensOnce() public {
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + CONTEST);
        conclude(commitment);
        conclude(commitment);

        assertStake(STAKE - PENALTY, 0);
    }

    function test_ASlashReachesARevokedNodeWhoseProviderTookTheRestAway() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        VM.prank(PROVIDER);
        staking.unstake(run, node, STAKE - 1050);
        VM.warp(START + DUE);
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + DUE + CONTEST);
        conclude(commitment);

        assertStake(BOND, 0);
        assertState(commitment, IRunCoordinator.State.Slashed);
    }

    function test_ASlashLeavesTheNodesOtherSubmissionsCovered() public {
        VM.prank(PROVIDER);
        staking.unstake(run, node, STAKE - 2100);
        bytes32 other = submit(1);
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + DUE);
        settle(listOf(other));
        VM.warp(START + CONTEST);
        conclude(commitment);

        assertEq(coordinator.rewards(PROVIDER), PAY);
        assertStake(1100, 0);
    }
}
