// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Staking} from "../../src/Staking.sol";
import {IStaking} from "../../src/interfaces/IStaking.sol";
import {StakingFixture} from "../support/StakingFixture.sol";
import {VM} from "../support/Vm.sol";

contract StakingConstructorTest is StakingFixture {
    function test_RevertsWithoutAToken() public {
        VM.expectRevert(IStaking.ZeroAddress.selector);
        new Staking(address(0), UNBONDING);
    }
}

contract StakingStakeTest is StakingFixture {
    function test_RevertsOnNothing() public {
        VM.expectRevert(IStaking.ZeroAmount.selector);
        stakeAs(PROVIDER, 0);
    }

    function test_RevertsBeyondTheAllowance() public {
        VM.expectRevert();
        stakeAs(PROVIDER, 2001);
    }

    function test_AddsToTheFreeStakeAndTakesTheTokens() public {
        VM.expectEmit(address(staking));
        emit IStaking.Staked(PROVIDER, 2000);
        stakeAs(PROVIDER, 2000);

        assertEq(staking.free(PROVIDER), 7000);
        assertEq(token.balanceOf(PROVIDER), 0);
        assertEq(token.balanceOf(address(staking)), 10_000);
    }
}

contract StakingAllocateTest is StakingFixture {
    function test_RevertsForAnotherProvidersNode() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotProvider.selector, STRANGER, node));
        allocateAs(STRANGER, RUN, node, 1);
    }

    function test_RevertsForARevokedNode() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotProvider.selector, PROVIDER, node));
        allocateAs(PROVIDER, RUN, node, 1);
    }

    function test_RevertsOnNothing() public {
        VM.expectRevert(IStaking.ZeroAmount.selector);
        allocateAs(PROVIDER, RUN, node, 0);
    }

    function test_RevertsBeyondTheFreeStake() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 5001, 5000));
        allocateAs(PROVIDER, RUN, node, 5001);
    }

    function test_MovesFreeStakeBehindTheNodeInThatRunOnly() public {
        VM.expectEmit(address(staking));
        emit IStaking.Allocated(PROVIDER, RUN, node, 500);
        allocateAs(PROVIDER, RUN, node, 500);

        assertEq(staking.free(PROVIDER), 4500);
        assertAllocation(RUN, node, 3500, 0);
        assertAllocation(RUN + 1, node, 0, 0);
    }

    function test_RemembersTheFirstAllocationForEver() public {
        VM.roll(50);
        allocateAs(PROVIDER, 9, node, 10);
        unstakeAs(PROVIDER, 9, node, 10);
        VM.roll(60);
        allocateAs(PROVIDER, 9, node, 10);

        assertEq(staking.firstAllocation(9, node), 50);
        assertEq(staking.firstAllocation(10, node), 0);
    }
}

contract StakingUnstakeTest is StakingFixture {
    function test_RevertsOnNothing() public {
        VM.expectRevert(IStaking.ZeroAmount.selector);
        unstakeAs(PROVIDER, RUN, node, 0);
    }

    function test_RevertsForAnotherProvidersNode() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotProvider.selector, STRANGER, node));
        unstakeAs(STRANGER, RUN, node, 1);
    }

    function test_RevertsBeyondTheFreeStake() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 5001, 5000));
        unstakeAs(PROVIDER, 0, address(0), 5001);
    }

    function test_RevertsForWhatOpenSubmissionsLock() public {
        staking.lock(RUN, node, 1000);
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 2001, 2000));
        unstakeAs(PROVIDER, RUN, node, 2001);
    }

    function test_RevertsWhileSixteenOthersArePending() public {
        for (uint256 i = 0; i < 16; ++i) {
            unstakeAs(PROVIDER, 0, address(0), 1);
        }
        VM.expectRevert(abi.encodeWithSelector(IStaking.TooManyUnbondings.selector, 16));
        unstakeAs(PROVIDER, 0, address(0), 1);
    }

    function test_StartsTheClockOfAllocatedStake() public {
        VM.expectEmit(address(staking));
        emit IStaking.Unstaked(PROVIDER, RUN, node, 1200, uint40(START + UNBONDING));
        unstakeAs(PROVIDER, RUN, node, 1200);

        assertAllocation(RUN, node, 1800, 0);
        assertUnbonding(PROVIDER, 1200, 0);
    }

    function test_StartsTheClockOfFreeStake() public {
        unstakeAs(PROVIDER, 0, address(0), 5000);

        assertEq(staking.free(PROVIDER), 0);
        assertUnbonding(PROVIDER, 5000, 0);
    }

    function test_LetsARevokedNodesStakeOut() public {
        VM.prank(PROVIDER);
        staking.revokeNode(node);
        unstakeAs(PROVIDER, RUN, node, 3000);

        assertUnbonding(PROVIDER, 3000, 0);
    }
}

contract StakingWithdrawTest is StakingFixture {
    function test_RevertsWhileNothingHasMatured() public {
        unstakeAs(PROVIDER, RUN, node, 100);
        VM.warp(START + UNBONDING - 1);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NothingToWithdraw.selector, PROVIDER));
        withdrawAs(PROVIDER);
    }

    function test_PaysWhatHasMaturedAndNothingElse() public {
        unstakeAs(PROVIDER, RUN, node, 100);
        unstakeAs(PROVIDER, 0, address(0), 30);
        VM.warp(START + 10);
        unstakeAs(PROVIDER, RUN, node, 7);
        VM.warp(START + UNBONDING);
        assertUnbonding(PROVIDER, 137, 130);

        VM.expectEmit(address(staking));
        emit IStaking.Withdrawn(PROVIDER, 130);
        assertEq(withdrawAs(PROVIDER), 130);

        assertUnbonding(PROVIDER, 7, 0);
        assertEq(token.balanceOf(PROVIDER), 2130);
    }

    function test_ALaterUnstakeDoesNotDelayAnEarlierOne() public {
        unstakeAs(PROVIDER, RUN, node, 100);
        VM.warp(START + UNBONDING - 1);
        unstakeAs(PROVIDER, RUN, node, 1);
        VM.warp(START + UNBONDING);

        assertEq(withdrawAs(PROVIDER), 100);
    }

    function test_FreesRoomForSixteenMore() public {
        for (uint256 i = 0; i < 16; ++i) {
            unstakeAs(PROVIDER, 0, address(0), 1);
        }
        VM.warp(START + UNBONDING);
        assertEq(withdrawAs(PROVIDER), 16);
        unstakeAs(PROVIDER, 0, address(0), 1);

        assertUnbonding(PROVIDER, 1, 0);
    }
}
