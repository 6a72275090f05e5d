// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

contract ProposeTrainerTest is NetworkFixture {
    function test_RevertsForTheTrainerItself() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotOwner.selector, TRAINER, OWNER));
        VM.prank(TRAINER);
        coordinator.proposeTrainer(run, STRANGER);
    }

    function test_RevertsOnTheZeroAddress() public {
        VM.expectRevert(IRunCoordinator.ZeroAddress.selector);
        VM.prank(OWNER);
        coordinator.proposeTrainer(run, address(0));
    }

    function test_ChangesNothingYet() public {
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.TrainerProposed(run, STRANGER, uint40(START + 500));
        VM.prank(OWNER);
        coordinator.proposeTrainer(run, STRANGER);

        assertEq(coordinator.runParams(run).trainer, TRAINER);
    }
}

contract AcceptTrainerTest is NetworkFixture {
    address private constant NEXT = address(0x4E87);

    function _propose() private {
        VM.prank(OWNER);
        coordinator.proposeTrainer(run, NEXT);
    }

    function test_RevertsWithoutAProposal() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotTrainer.selector, NEXT, address(0)));
        VM.prank(NEXT);
        coordinator.acceptTrainer(run);
    }

    function test_RevertsForAnybodyElse() public {
        _propose();
        VM.warp(START + 500);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotTrainer.selector, OWNER, NEXT));
        VM.prank(OWNER);
        coordinator.acceptTrainer(run);
    }

    function test_RevertsBeforeTheDelayIsOver() public {
        _propose();
        VM.warp(START + 499);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.TrainerNotReady.selector, START + 500));
        VM.prank(NEXT);
        coordinator.acceptTrainer(run);
    }

    function test_TheOldTrainerLosesTheRole() public {
        _propose();
        VM.warp(START + 500);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.TrainerSet(run, NEXT);
        VM.prank(NEXT);
        coordinator.acceptTrainer(run);

        assertEq(coordinator.runParams(run).trainer, NEXT);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotTrainer.selector, TRAINER, NEXT));
        VM.prank(TRAINER);
        coordinator.publishCheckpoint(run, 1, ROOT);
    }

    function test_AProposalIsUsedOnce() public {
        _propose();
        VM.warp(START + 500);
        VM.prank(NEXT);
        coordinator.acceptTrainer(run);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotTrainer.selector, NEXT, address(0)));
        VM.prank(NEXT);
        coordinator.acceptTrainer(run);
    }
}

contract SetRelayTest is NetworkFixture {
    function test_RevertsForAnybodyButTheOwner() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotOwner.selector, TRAINER, OWNER));
        VM.prank(TRAINER);
        coordinator.setRelay(run, STRANGER, true);
    }

    function test_RevertsOnTheZeroAddress() public {
        VM.expectRevert(IRunCoordinator.ZeroAddress.selector);
        VM.prank(OWNER);
        coordinator.setRelay(run, address(0), true);
    }

    function test_ApprovesAndReallyRevokes() public {
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.RelaySet(run, STRANGER, true);
        VM.prank(OWNER);
        coordinator.setRelay(run, STRANGER, true);
        assertTrue(coordinator.isRelay(run, STRANGER), "approved");

        VM.prank(OWNER);
        coordinator.setRelay(run, STRANGER, false);
        assertTrue(!coordinator.isRelay(run, STRANGER), "revoked");
    }
}

contract SetEndpointTest is NetworkFixture {
    function test_RevertsOver256Bytes() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.EndpointTooLong.selector, 257));
        coordinator.setEndpoint(string(new bytes(257)));
    }

    function test_AnnouncesTheCallersUrl() public {
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.EndpointSet(STRANGER, "http://10.0.0.1:8080");
        VM.prank(STRANGER);
        coordinator.setEndpoint("http://10.0.0.1:8080");
    }

    function test_Accepts256Bytes() public {
        string memory url = string(new bytes(256));
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.EndpointSet(address(this), url);
        coordinator.setEndpoint(url);
    }
}

contract PublishCheckpointTest is NetworkFixture {
    function test_RevertsForAnybodyButTheTrainer() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotTrainer.selector, OWNER, TRAINER));
        VM.prank(OWNER);
        coordinator.publishCheckpoint(run, 1, ROOT);
    }

    function test_RevertsOnceTheRunIsEnded() public {
        VM.prank(OWNER);
        coordinator.endRun(run);
        VM.warp(START + 10);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.RunIsEnded.selector, run));
        publish(1);
    }

    function test_RevertsOnTheSameVersionAgain() public {
        VM.warp(START + 10);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionMismatch.selector, 1, 0));
        publish(0);
    }

    function test_RevertsOnASkippedVersion() public {
        VM.warp(START + 10);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.VersionMismatch.selector, 1, 2));
        publish(2);
    }

    function test_RevertsWithinTheIntervalOfTheLastOne() public {
        VM.warp(START + 9);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.CheckpointTooSoon.selector, START + 10));
        publish(1);
    }

    function test_PublishesTheNextVersion() public {
        VM.warp(START + 10);
        VM.roll(77);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.CheckpointPublished(run, 1, ROOT);
        VM.prank(TRAINER);
        coordinator.publishCheckpoint(run, 1, ROOT);

        (bytes32 root, uint64 blockNumber, uint40 time) = coordinator.checkpoint(run, 1);
        assertEq(root, ROOT);
        assertEq(blockNumber, 77);
        assertEq(time, START + 10);
        (uint64 checkpoints,,,,) = coordinator.runState(run);
        assertEq(checkpoints, 2);
    }

    function test_ARollbackIsANewVersionWithAnOldRoot() public {
        VM.warp(START + 10);
        publish(1);
        VM.warp(START + 20);
        VM.prank(TRAINER);
        coordinator.publishCheckpoint(run, 2, bytes32(uint256(1)));

        (bytes32 root,,) = coordinator.checkpoint(run, 2);
        assertEq(root, bytes32(uint256(1)));
    }
}
