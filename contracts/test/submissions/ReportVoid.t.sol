// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

/// @dev Checks 0-4, 6, 7 and 10: a quorum in one call, or nothing.
contract ReportVoidTest is NetworkFixture {
    bytes32 private commitment;

    function setUp() public override {
        super.setUp();
        commitment = submit(0);
    }

    function _sign(IRunCoordinator.Fault[] memory faults, uint256[] memory signers)
        private
        view
        returns (bytes[] memory signatures)
    {
        signatures = new bytes[](faults.length);
        for (uint256 i = 0; i < faults.length; ++i) {
            signatures[i] = signFault(validatorKeys[signers[i]], faults[i]);
        }
    }

    function _three(uint256 first, uint256 second, uint256 third) private pure returns (uint256[] memory signers) {
        signers = new uint256[](3);
        (signers[0], signers[1], signers[2]) = (first, second, third);
    }

    function _faults(uint8 check) private view returns (IRunCoordinator.Fault[] memory faults) {
        faults = new IRunCoordinator.Fault[](3);
        for (uint256 i = 0; i < 3; ++i) {
            faults[i] = faultOf(commitment, 5, check);
        }
    }

    function _expectRefused(IRunCoordinator.Fault[] memory faults, uint256[] memory signers, bytes memory reason)
        private
    {
        bytes[] memory signatures = _sign(faults, signers);
        VM.expectRevert(reason);
        coordinator.report(run, faults, signatures);
    }

    function test_RevertsOnDuplicatesWhichAreTelemetry() public {
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.UnknownCheck.selector, 5);
        _expectRefused(_faults(5), _three(0, 1, 2), reason);
    }

    function test_RevertsOnChecksThatDoNotExist() public {
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.UnknownCheck.selector, 11);
        _expectRefused(_faults(11), _three(0, 1, 2), reason);
        reason = abi.encodeWithSelector(IRunCoordinator.UnknownCheck.selector, 255);
        _expectRefused(_faults(255), _three(0, 1, 2), reason);
    }

    function test_RevertsBelowTheQuorum() public {
        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](2);
        (faults[0], faults[1]) = (faultOf(commitment, 5, 3), faultOf(commitment, 5, 3));
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.QuorumNotReached.selector, 2, 3);
        _expectRefused(faults, _three(0, 1, 2), reason);
    }

    function test_RevertsWhenTheQuorumIsSpreadOverLeaves() public {
        IRunCoordinator.Fault[] memory faults = _faults(3);
        faults[2].leaf = 6;
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.QuorumNotReached.selector, 2, 3);
        _expectRefused(faults, _three(0, 1, 2), reason);
    }

    function test_RevertsWhenTheQuorumIsSpreadOverChecks() public {
        IRunCoordinator.Fault[] memory faults = _faults(3);
        faults[2].check = 4;
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.QuorumNotReached.selector, 2, 3);
        _expectRefused(faults, _three(0, 1, 2), reason);
    }

    function test_RevertsWhenOneValidatorSignsTwice() public {
        address signer = VM.addr(validatorKeys[1]);
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.SignersNotAscending.selector, signer, signer);
        _expectRefused(_faults(3), _three(0, 1, 1), reason);
    }

    function test_RevertsWhenOneFaultIsOfAnotherRun() public {
        IRunCoordinator.Fault[] memory faults = _faults(3);
        faults[1].run = 2;
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.WrongRun.selector, run, 2);
        _expectRefused(faults, _three(0, 1, 2), reason);
    }

    function test_RevertsWhenASignerIsNoValidator() public {
        IRunCoordinator.Fault[] memory faults = _faults(3);
        bytes[] memory signatures = _sign(faults, _three(0, 1, 2));
        signatures[0] = signFault(NODE_KEY, faults[0]);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotValidator.selector, node));
        coordinator.report(run, faults, signatures);
    }

    function test_BurnsTheBondAndNothingElse() public {
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Voided(run, commitment, 3, BOND);
        reportBy(0, 3, commitment, 5, 3);

        assertState(commitment, IRunCoordinator.State.Voided);
        assertStake(STAKE - BOND, 0);
        assertPot(POT, 0, 0);
        assertEq(coordinator.openOf(run, node), 0);
        assertEq(token.totalSupply(), POT + STAKE - BOND);
    }

    function test_EveryCheapCheckVoids() public {
        uint8[7] memory checks = [0, 1, 2, 4, 6, 7, 10];
        for (uint64 i = 0; i < 7; ++i) {
            bytes32 other = submit(i + 1);
            reportBy(1, 3, other, WHOLE_FILE, checks[i]);
            assertState(other, IRunCoordinator.State.Voided);
        }
        assertStake(STAKE - 7 * BOND, 1050);
    }

    function test_BurnsTheBondOfANodeThatWasRevokedSince() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        reportBy(0, 3, commitment, 5, 3);

        assertStake(STAKE - BOND, 0);
    }

    function test_VoidsWhatIsFrozen() public {
        reportBy(0, 1, commitment, 5, 8);
        reportBy(0, 3, commitment, 6, 3);

        assertState(commitment, IRunCoordinator.State.Voided);
    }

    function test_DoesNotSaveTheConvicted() public {
        reportBy(0, 3, commitment, 5, 8);
        reportBy(0, 3, commitment, 6, 3);

        assertState(commitment, IRunCoordinator.State.Faulted);
        assertStake(STAKE, 1050);
    }

    function test_SkipsWhatIsFinal() public {
        reportBy(0, 3, commitment, 5, 3);
        reportBy(0, 3, commitment, 5, 3);

        assertStake(STAKE - BOND, 0);
        assertPot(POT, 0, 0);
    }

    function test_SkipsWhatHasExpired() public {
        VM.warp(START + SETTLE_BY + 1);
        reportBy(0, 3, commitment, 5, 3);

        assertState(commitment, IRunCoordinator.State.Submitted);
    }

    function test_TakesSeveralFindingsInOneCall() public {
        bytes32 other = submit(1);
        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](7);
        bytes[] memory signatures = new bytes[](7);
        for (uint256 i = 0; i < 7; ++i) {
            if (i < 3) faults[i] = faultOf(commitment, 5, 3);
            else if (i == 3) faults[i] = faultOf(other, 0, 9);
            else faults[i] = faultOf(other, 2, 7);
            signatures[i] = signFault(validatorKeys[i < 3 ? i : i - 3], faults[i]);
        }
        coordinator.report(run, faults, signatures);

        assertState(commitment, IRunCoordinator.State.Voided);
        assertState(other, IRunCoordinator.State.Voided);
        assertLeaf(other, 0, START, 1, 0);
        assertStake(STAKE - 2 * BOND, 0);
    }
}
