// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

contract FundRunTest is NetworkFixture {
    function test_RevertsForAnUnknownRun() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 9));
        coordinator.fundRun(9, 1);
    }

    function test_RevertsOnceTheRunIsEnded() public {
        VM.prank(OWNER);
        coordinator.endRun(run);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunIsEnded.selector, run));
        coordinator.fundRun(run, 1);
    }

    function test_RevertsOnMoreThanAPotHolds() public {
        VM.expectRevert(abi.encodeWithSelector(SafeCast.SafeCastOverflowedUintDowncast.selector, 128, POT + (1 << 128)));
        coordinator.fundRun(run, 1 << 128);
    }

    function test_RevertsOnMoreThanAPotHoldsWithWhatMayComeBackToIt() public {
        submit(0);
        VM.expectRevert(abi.encodeWithSelector(SafeCast.SafeCastOverflowedUintDowncast.selector, 128, 1 << 128));
        coordinator.fundRun(run, type(uint128).max - POT + 1);
    }

    function test_RevertsBeyondTheAllowance() public {
        bytes4 reason = IERC20Errors.ERC20InsufficientAllowance.selector;
        VM.expectRevert(abi.encodeWithSelector(reason, address(coordinator), 0, 1));
        coordinator.fundRun(run, 1);
    }

    function test_AddsToThePotFromAnybody() public {
        token.faucet(50);
        token.approve(address(coordinator), 50);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.RunFunded(run, address(this), 50);
        coordinator.fundRun(run, 50);

        assertPot(POT + 50, 0, 0);
        assertEq(token.balanceOf(address(coordinator)), POT + 50);
    }
}

contract EndRunTest is NetworkFixture {
    function test_RevertsForAStranger() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotOwner.selector, STRANGER, OWNER));
        VM.prank(STRANGER);
        coordinator.endRun(run);
    }

    function test_RevertsTheSecondTime() public {
        VM.prank(OWNER);
        coordinator.endRun(run);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunIsEnded.selector, run));
        VM.prank(OWNER);
        coordinator.endRun(run);
    }

    function test_EndsForTheOwner() public {
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.RunEnded(run);
        VM.prank(OWNER);
        coordinator.endRun(run);

        (,,,, uint40 endedAt) = coordinator.runState(run);
        assertEq(endedAt, START);
    }

    function test_EndsForTheTrainer() public {
        VM.prank(TRAINER);
        coordinator.endRun(run);

        (,,,, uint40 endedAt) = coordinator.runState(run);
        assertEq(endedAt, START);
    }
}

contract WithdrawPotTest is NetworkFixture {
    function _end() private {
        VM.prank(OWNER);
        coordinator.endRun(run);
    }

    function test_RevertsForAnybodyButTheOwner() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotOwner.selector, TRAINER, OWNER));
        VM.prank(TRAINER);
        coordinator.withdrawPot(run);
    }

    function test_RevertsWhileTheRunGoesOn() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunNotEnded.selector, run));
        VM.prank(OWNER);
        coordinator.withdrawPot(run);
    }

    function test_RevertsWhileGraceLetsWorkIn() public {
        _end();
        VM.warp(START + GRACE);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunNotEnded.selector, run));
        VM.prank(OWNER);
        coordinator.withdrawPot(run);
    }

    function test_RevertsWhileASubmissionIsOpen() public {
        submit(0);
        _end();
        VM.warp(START + GRACE + 1);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunStillOpen.selector, run, 1));
        VM.prank(OWNER);
        coordinator.withdrawPot(run);
    }

    function test_PaysWhatIsLeftAndKeepsWhatIsOwed() public {
        bytes32 commitment = submit(0);
        _end();
        VM.warp(START + DUE);
        settle(listOf(commitment));
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.PotWithdrawn(run, POT - PAY);
        VM.prank(OWNER);
        coordinator.withdrawPot(run);

        assertEq(token.balanceOf(OWNER), POT - PAY);
        assertEq(token.balanceOf(address(coordinator)), PAY);
        assertPot(0, 0, 0);
    }

    function test_PaysOnlyOnce() public {
        _end();
        VM.warp(START + GRACE + 1);
        VM.prank(OWNER);
        assertEq(coordinator.withdrawPot(run), POT);
        VM.prank(OWNER);
        assertEq(coordinator.withdrawPot(run), 0);
    }
}
