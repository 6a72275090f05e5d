// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {Signing} from "../support/Signing.sol";
import {VM} from "../support/Vm.sol";

/// @dev Checks 8 and 9: each Fault counts for itself.
contract ReportFreezeTest is NetworkFixture {
    bytes32 private commitment;

    function setUp() public override {
        super.setUp();
        commitment = submit(0);
        VM.warp(START + DUE - 1);
    }

    function _report(IRunCoordinator.Fault memory f, bytes memory signature) private {
        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](1);
        faults[0] = f;
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = signature;
        coordinator.report(run, faults, signatures);
    }

    function test_RevertsOnNothing() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 0));
        coordinator.report(run, new IRunCoordinator.Fault[](0), new bytes[](0));
    }

    function test_RevertsOver64Faults() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 65));
        coordinator.report(run, new IRunCoordinator.Fault[](65), new bytes[](65));
    }

    function test_RevertsUnlessEveryFaultHasASignature() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.LengthMismatch.selector, 2, 1));
        coordinator.report(run, new IRunCoordinator.Fault[](2), new bytes[](1));
    }

    function test_RevertsOnAFaultOfAnotherRun() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        f.run = 2;
        bytes memory signature = signFault(validatorKeys[0], f);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.WrongRun.selector, run, 2));
        _report(f, signature);
    }

    function test_RevertsForASignerThatIsNoValidator() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory signature = signFault(NODE_KEY, f);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotValidator.selector, node));
        _report(f, signature);
    }

    function test_RevertsOnAHighS() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory signature = Signing.malleated(signFault(validatorKeys[0], f));
        VM.expectRevert(IRunCoordinator.InvalidSignature.selector);
        _report(f, signature);
    }

    function test_RevertsOnASignatureOfAnotherLength() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory whole = signFault(validatorKeys[0], f);
        VM.expectRevert(IRunCoordinator.InvalidSignature.selector);
        _report(f, bytes.concat(whole, hex"00"));
        VM.expectRevert(IRunCoordinator.InvalidSignature.selector);
        _report(f, "");
    }

    function test_RevertsOnASignatureForAnotherChainOrContract() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory elsewhere = Signing.sign(
            validatorKeys[0], address(staking), Signing.fault(f.run, f.commitment, f.leaf, f.check, f.evidence)
        );
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        _report(f, elsewhere);
        bytes memory here = signFault(validatorKeys[0], f);
        VM.chainId(84532);
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        _report(f, here);
    }

    function test_RevertsWhenTheFaultIsNotTheOneSigned() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory signature = signFault(validatorKeys[0], f);
        f.leaf = 6;
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        _report(f, signature);
    }

    function test_TheFirstFaultFreezes() public {
        IRunCoordinator.Fault memory f = faultOf(commitment, 5, 8);
        bytes memory signature = signFault(validatorKeys[2], f);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Reported(run, commitment, VM.addr(validatorKeys[2]), 5, 8, f.evidence, 1);
        _report(f, signature);

        assertState(commitment, IRunCoordinator.State.Faulted);
        assertLeaf(commitment, 5, START + DUE - 1, 1, 0);
        assertPot(POT - PAY, PAY, 1);
        assertStake(STAKE, 1050);
    }

    function test_AValidatorCountsOncePerLeaf() public {
        reportBy(0, 1, commitment, 5, 8);
        reportBy(0, 1, commitment, 5, 9);
        reportBy(0, 1, commitment, 5, 8);

        assertLeaf(commitment, 5, START + DUE - 1, 1, 0);
    }

    function test_VotesOnDifferentLeavesDoNotAddUp() public {
        reportBy(0, 2, commitment, 5, 8);
        reportBy(2, 2, commitment, 6, 8);

        assertLeaf(commitment, 5, START + DUE - 1, 2, 0);
        assertLeaf(commitment, 6, START + DUE - 1, 2, 0);
    }

    function test_ToplocAndSamplingCountTogether() public {
        reportBy(0, 2, commitment, 5, 8);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Reported(
            run, commitment, VM.addr(validatorKeys[2]), 5, 9, keccak256(abi.encode("evidence of validator", 2)), 3
        );
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Convicted(run, commitment, 5, 9, uint40(START + DUE - 1 + CONTEST));
        reportBy(2, 1, commitment, 5, 9);

        assertLeaf(commitment, 5, START + DUE - 1, 3, START + DUE - 1 + CONTEST);
        assertState(commitment, IRunCoordinator.State.Faulted);
    }

    function test_TheWholeFileIsALeafOfItsOwn() public {
        reportBy(0, 3, commitment, WHOLE_FILE, 9);

        assertLeaf(commitment, WHOLE_FILE, START + DUE - 1, 3, START + DUE - 1 + CONTEST);
    }

    function test_TheQuorumCountsInTheLastSecondOfItsWindow() public {
        reportBy(0, 1, commitment, 5, 8);
        VM.warp(START + DUE + CONFIRM);
        reportBy(1, 2, commitment, 5, 8);

        assertLeaf(commitment, 5, START + DUE - 1, 3, START + DUE + CONFIRM + CONTEST);
    }

    function test_VotesAfterTheWindowDoNotCount() public {
        reportBy(0, 2, commitment, 5, 8);
        VM.warp(START + DUE + CONFIRM + 1);
        reportBy(2, 1, commitment, 5, 8);

        assertLeaf(commitment, 5, START + DUE - 1, 2, 0);
    }

    function test_NewLeavesOpenOnlyWithinConfirmOfTheFirstReport() public {
        reportBy(0, 1, commitment, 5, 8);
        VM.warp(START + DUE - 1 + CONFIRM);
        reportBy(0, 1, commitment, 6, 8);
        VM.warp(START + DUE + CONFIRM);
        reportBy(0, 1, commitment, 7, 8);

        assertLeaf(commitment, 6, START + DUE - 1 + CONFIRM, 1, 0);
        assertLeaf(commitment, 7, 0, 0, 0);
    }

    function test_TheFirstConvictionStands() public {
        reportBy(0, 3, commitment, 5, 8);
        VM.warp(START + DUE + 9);
        reportBy(0, 3, commitment, 6, 8);

        assertLeaf(commitment, 5, START + DUE - 1, 3, START + DUE - 1 + CONTEST);
        assertLeaf(commitment, 6, START + DUE + 9, 3, 0);
    }

    function test_WhatIsSettledStaysSettled() public {
        VM.warp(START + DUE);
        settle(listOf(commitment));
        reportBy(0, 3, commitment, 5, 8);

        assertState(commitment, IRunCoordinator.State.Settled);
        assertLeaf(commitment, 5, 0, 0, 0);
    }

    function test_WhatHasExpiredIsNotFrozen() public {
        VM.warp(START + SETTLE_BY + 1);
        reportBy(0, 3, commitment, 5, 8);

        assertState(commitment, IRunCoordinator.State.Submitted);
    }

    function test_WhatNobodyCommittedIsNotFrozen() public {
        reportBy(0, 3, ROOT, 5, 8);

        assertState(ROOT, IRunCoordinator.State.None);
    }
}

/// @dev A report before the audit is due must not end the audit: an accomplice among the validators would else save a cheat.
contract ReportBeforeDueTest is NetworkFixture {
    bytes32 private commitment;

    function setUp() public override {
        super.setUp();
        commitment = submit(0);
        reportBy(0, 1, commitment, 5, 8);
    }

    function test_OtherLeavesOpenUntilTheAuditIsDue() public {
        VM.warp(START + DUE);
        reportBy(1, 3, commitment, 6, 8);

        assertLeaf(commitment, 6, START + DUE, 3, START + DUE + CONTEST);
    }

    function test_NewLeavesDoNotOpenAfterThen() public {
        VM.warp(START + DUE + 1);
        reportBy(1, 3, commitment, 6, 8);

        assertLeaf(commitment, 6, 0, 0, 0);
    }

    function test_TheReportedLeafTakesVotesUntilConfirmAfterThen() public {
        VM.warp(START + DUE);
        reportBy(1, 1, commitment, 5, 8);
        VM.warp(START + DUE + CONFIRM);
        reportBy(2, 1, commitment, 5, 8);

        assertLeaf(commitment, 5, START, 3, START + DUE + CONFIRM + CONTEST);
        VM.warp(START + DUE + CONFIRM + CONTEST);
        conclude(commitment);
        assertState(commitment, IRunCoordinator.State.Slashed);
    }

    function test_AfterThatNoVoteCounts() public {
        VM.warp(START + DUE + CONFIRM + 1);
        reportBy(1, 3, commitment, 5, 8);

        assertLeaf(commitment, 5, START, 1, 0);
    }

    function test_NothingIsUndecidedBeforeThat() public {
        VM.warp(START + DUE + CONFIRM);
        conclude(commitment);
        assertState(commitment, IRunCoordinator.State.Faulted);

        VM.warp(START + DUE + CONFIRM + 1);
        conclude(commitment);
        assertState(commitment, IRunCoordinator.State.Voided);
    }
}
