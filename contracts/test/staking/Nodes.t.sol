// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IStaking} from "../../src/interfaces/IStaking.sol";
import {Signing} from "../support/Signing.sol";
import {StakingFixture} from "../support/StakingFixture.sol";
import {VM} from "../support/Vm.sol";

contract StakingAuthorizeNodeTest is StakingFixture {
    uint256 private constant KEY = 0xF00;
    address private fresh = VM.addr(KEY);

    function _signature(address provider, uint256 nonce, uint256 deadline) private view returns (bytes memory) {
        return Signing.sign(KEY, address(staking), Signing.nodeAuthorization(provider, fresh, nonce, deadline));
    }

    function test_RevertsForANodeThatWorksForSomebody() public {
        bytes32 message = Signing.nodeAuthorization(STRANGER, node, 1, START);
        bytes memory signature = Signing.sign(NODE_KEY, address(staking), message);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NodeTaken.selector, node, PROVIDER));
        VM.prank(STRANGER);
        staking.authorizeNode(node, START, signature);
    }

    function test_RevertsForANodeThatAnotherProviderRevoked() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        bytes32 message = Signing.nodeAuthorization(STRANGER, node, 1, START);
        bytes memory signature = Signing.sign(NODE_KEY, address(staking), message);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NodeTaken.selector, node, PROVIDER));
        VM.prank(STRANGER);
        staking.authorizeNode(node, START, signature);
    }

    function test_RevertsAfterTheDeadline() public {
        bytes memory signature = _signature(PROVIDER, 0, START - 1);
        VM.expectRevert(abi.encodeWithSelector(IStaking.DeadlinePassed.selector, START - 1, START));
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START - 1, signature);
    }

    function test_RevertsWhenSomebodyElseSendsTheSignature() public {
        bytes memory signature = _signature(PROVIDER, 0, START);
        VM.expectPartialRevert(IStaking.InvalidSignature.selector);
        VM.prank(STRANGER);
        staking.authorizeNode(fresh, START, signature);
    }

    function test_RevertsOnASignatureForAnotherChain() public {
        bytes memory signature = _signature(PROVIDER, 0, START);
        VM.chainId(block.chainid + 1);
        VM.expectPartialRevert(IStaking.InvalidSignature.selector);
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START, signature);
    }

    function test_RevertsOnAHighS() public {
        bytes memory signature = Signing.malleated(_signature(PROVIDER, 0, START));
        VM.expectRevert(abi.encodeWithSelector(IStaking.InvalidSignature.selector, address(0), fresh));
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START, signature);
    }

    function test_RevertsForTheZeroAddressWhichEveryBrokenSignatureRecoversTo() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.InvalidSignature.selector, address(0), address(0)));
        VM.prank(PROVIDER);
        staking.authorizeNode(address(0), START, new bytes(65));
    }

    function test_RevertsWhenAnOldSignatureIsSentAgain() public {
        bytes memory signature = _signature(PROVIDER, 0, START);
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START, signature);
        VM.prank(PROVIDER);
        staking.revokeNode(fresh);
        VM.expectPartialRevert(IStaking.InvalidSignature.selector);
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START, signature);
    }

    function test_BindsTheNodeToTheCaller() public {
        bytes memory signature = _signature(PROVIDER, 0, START);
        VM.expectEmit(address(staking));
        emit IStaking.NodeAuthorized(PROVIDER, fresh, 0);
        VM.prank(PROVIDER);
        staking.authorizeNode(fresh, START, signature);

        assertEq(staking.providerOf(fresh), PROVIDER);
        assertEq(staking.boundTo(fresh), PROVIDER);
        assertEq(staking.nonces(fresh), 1);
    }

    function test_TheSameProviderMayTakeItsNodeBack() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        authorize(PROVIDER, NODE_KEY);

        assertEq(staking.providerOf(node), PROVIDER);
        assertEq(staking.nonces(node), 2);
    }
}

contract StakingRevokeNodeTest is StakingFixture {
    function test_RevertsForAnotherProvidersNode() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotProvider.selector, STRANGER, node));
        VM.prank(STRANGER);
        staking.revokeNode(node);
    }

    function test_RevertsTheSecondTime() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotProvider.selector, PROVIDER, node));
        VM.prank(PROVIDER);
        staking.revokeNode(node);
    }

    function test_UnbindsTheNodeFromWorkAndNotFromItsPast() public {
        VM.expectEmit(address(staking));
        emit IStaking.NodeRevoked(PROVIDER, node);
        VM.prank(PROVIDER);
        staking.revokeNode(node);

        assertEq(staking.providerOf(node), address(0));
        assertEq(staking.boundTo(node), PROVIDER);
    }

    function test_LeavesALockInPlaceAndItsStakeSlashable() public {
        staking.lock(RUN, node, 1000);
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        staking.unlock(RUN, node, 1000);

        assertEq(staking.slash(RUN, node, 1000), 1000);
        assertAllocation(RUN, node, 2000, 0);
    }
}
