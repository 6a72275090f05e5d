// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {Signing} from "../support/Signing.sol";
import {VM} from "../support/Vm.sol";

contract SettleTest is NetworkFixture {
    function test_RevertsForAnUnknownRun() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 9));
        coordinator.settle(9, listOf(ROOT), new bytes[](3));
    }

    function test_RevertsOnAnEmptyBatch() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 0));
        coordinator.settle(run, new bytes32[](0), new bytes[](3));
    }

    function test_RevertsOver64Entries() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.BatchSize.selector, 65));
        coordinator.settle(run, new bytes32[](65), new bytes[](3));
    }

    function test_RevertsBelowTheQuorum() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 2);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.QuorumNotReached.selector, 2, 3));
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsWhenOneValidatorSignsTwice() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 3);
        signatures[2] = signatures[1];
        address signer = VM.addr(validatorKeys[1]);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.SignersNotAscending.selector, signer, signer));
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsWhenASignerIsNoValidator() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 3);
        signatures[0] = Signing.sign(NODE_KEY, address(coordinator), Signing.batch(run, batch));
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NotValidator.selector, node));
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsOnSignaturesForAnotherRun() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 1);
        IRunCoordinator.RunParams memory p = params();
        p.quorum = 1;
        uint256 other = createRunAs(OWNER, p);
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        coordinator.settle(other, batch, signatures);
    }

    function test_RevertsOnAHighS() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 3);
        signatures[0] = Signing.malleated(signatures[0]);
        VM.expectRevert(IRunCoordinator.InvalidSignature.selector);
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsOnASignatureForAnotherChain() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 1);
        IRunCoordinator.RunParams memory p = params();
        p.quorum = 1;
        run = createRunAs(OWNER, p);
        VM.chainId(84532);
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsOnASignatureForAnotherContract() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 3);
        signatures[0] = Signing.sign(validatorKeys[0], address(staking), Signing.batch(run, batch));
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        coordinator.settle(run, batch, signatures);
    }

    function test_RevertsOnASignatureOfAnotherLength() public {
        bytes32[] memory batch = listOf(submit(0));
        bytes[] memory signatures = batchSignatures(batch, 3);
        bytes memory whole = signatures[0];
        bytes[4] memory wrong =
            [bytes(""), abi.encodePacked(bytes32(whole), bytes32(0)), bytes.concat(whole, hex"00"), new bytes(65)];
        for (uint256 i = 0; i < wrong.length; ++i) {
            signatures[0] = wrong[i];
            VM.expectRevert(IRunCoordinator.InvalidSignature.selector);
            coordinator.settle(run, batch, signatures);
        }
    }

    function test_SkipsWhatIsNotDue() public {
        bytes32 commitment = submit(0);
        VM.warp(START + DUE - 1);
        settle(listOf(commitment));

        assertState(commitment, IRunCoordinator.State.Submitted);
        assertPot(POT - PAY, PAY, 1);
    }

    function test_SkipsWhatHasExpiredThoughNobodyHasSaidSo() public {
        bytes32 commitment = submit(0);
        VM.warp(START + SETTLE_BY + 1);
        settle(listOf(commitment));

        assertState(commitment, IRunCoordinator.State.Submitted);
        assertEq(coordinator.rewards(PROVIDER), 0);
    }

    function test_SkipsWhatIsFrozen() public {
        bytes32 commitment = submit(0);
        reportBy(0, 1, commitment, 5, 8);
        VM.warp(START + DUE);
        settle(listOf(commitment));

        assertState(commitment, IRunCoordinator.State.Faulted);
    }

    function test_SkipsWhatNobodyCommitted() public {
        settle(listOf(ROOT));
        assertState(ROOT, IRunCoordinator.State.None);
    }

    function test_PaysTheProviderAndFreesItsStake() public {
        bytes32 commitment = submit(0);
        VM.warp(START + DUE);
        bytes[] memory signatures = batchSignatures(listOf(commitment), 3);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Settled(run, commitment, PROVIDER, PAY);
        coordinator.settle(run, listOf(commitment), signatures);

        assertState(commitment, IRunCoordinator.State.Settled);
        assertEq(coordinator.rewards(PROVIDER), PAY);
        assertEq(coordinator.openOf(run, node), 0);
        assertPot(POT - PAY, 0, 0);
        assertStake(STAKE, 0);
    }

    function test_PaysInTheLastSecond() public {
        bytes32 commitment = submit(0);
        VM.warp(START + SETTLE_BY);
        settle(listOf(commitment));

        assertEq(coordinator.rewards(PROVIDER), PAY);
    }

    function test_PaysOnceInOneBatchAndInTwo() public {
        bytes32 commitment = submit(0);
        VM.warp(START + DUE);
        bytes32[] memory twice = new bytes32[](2);
        (twice[0], twice[1]) = (commitment, commitment);
        settle(twice);
        settle(listOf(commitment));

        assertEq(coordinator.rewards(PROVIDER), PAY);
        assertPot(POT - PAY, 0, 0);
    }

    function test_PaysWorkWhoseVersionHasLeftTheWindowSince() public {
        bytes32 commitment = submit(0);
        for (uint64 version = 1; version < 5; ++version) {
            VM.warp(START + 60 * uint256(version));
            publish(version);
        }
        VM.warp(START + DUE);
        settle(listOf(commitment));

        assertEq(coordinator.rewards(PROVIDER), PAY);
    }

    function test_PaysTheProviderOfANodeThatWasRevokedSince() public {
        bytes32 commitment = submit(0);
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        VM.warp(START + DUE);
        settle(listOf(commitment));

        assertEq(coordinator.rewards(PROVIDER), PAY);
        assertStake(STAKE, 0);
    }

    function test_TakesMoreSignaturesThanTheQuorum() public {
        bytes32 commitment = submit(0);
        VM.warp(START + DUE);
        coordinator.settle(run, listOf(commitment), batchSignatures(listOf(commitment), 4));

        assertState(commitment, IRunCoordinator.State.Settled);
    }

    function test_PaysWhatIsDueAndSkipsTheRest() public {
        bytes32[] memory batch = new bytes32[](3);
        batch[0] = submit(0);
        batch[1] = ROOT;
        VM.warp(START + 1);
        batch[2] = submit(1);
        VM.warp(START + DUE);
        settle(batch);

        assertState(batch[0], IRunCoordinator.State.Settled);
        assertState(batch[2], IRunCoordinator.State.Submitted);
        assertEq(coordinator.rewards(PROVIDER), PAY);
    }
}

contract ClaimTest is NetworkFixture {
    function test_RevertsWithoutRewards() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NothingToClaim.selector, PROVIDER));
        VM.prank(PROVIDER);
        coordinator.claim();
    }

    function test_PaysAllRewardsOnceToTheProvider() public {
        bytes32[] memory batch = new bytes32[](2);
        (batch[0], batch[1]) = (submit(0), submit(1));
        VM.warp(START + DUE);
        settle(batch);
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.Claimed(PROVIDER, 2 * PAY);
        VM.prank(PROVIDER);
        assertEq(coordinator.claim(), 2 * PAY);

        assertEq(token.balanceOf(PROVIDER), 2 * PAY);
        assertEq(token.balanceOf(address(coordinator)), POT - 2 * PAY);
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.NothingToClaim.selector, PROVIDER));
        VM.prank(PROVIDER);
        coordinator.claim();
    }
}
