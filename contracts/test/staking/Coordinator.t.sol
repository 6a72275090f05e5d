// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Staking} from "../../src/Staking.sol";
import {IStaking} from "../../src/interfaces/IStaking.sol";
import {StakingFixture} from "../support/StakingFixture.sol";
import {VM} from "../support/Vm.sol";

contract StakingSetCoordinatorTest is StakingFixture {
    function test_RevertsForAnybodyButTheDeployer() public {
        Staking fresh = new Staking(address(token), UNBONDING);
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotDeployer.selector, STRANGER));
        VM.prank(STRANGER);
        fresh.setCoordinator(STRANGER);
    }

    function test_RevertsOnTheZeroAddress() public {
        Staking fresh = new Staking(address(token), UNBONDING);
        VM.expectRevert(IStaking.ZeroAddress.selector);
        fresh.setCoordinator(address(0));
    }

    function test_RevertsTheSecondTime() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.CoordinatorAlreadySet.selector, address(this)));
        staking.setCoordinator(address(1));
    }

    function test_SetsTheCoordinator() public {
        Staking fresh = new Staking(address(token), UNBONDING);
        VM.expectEmit(address(fresh));
        emit IStaking.CoordinatorSet(address(1));
        fresh.setCoordinator(address(1));

        assertEq(fresh.coordinator(), address(1));
    }
}

contract StakingLockTest is StakingFixture {
    function test_RevertsForAnybodyButTheCoordinator() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotCoordinator.selector, PROVIDER));
        VM.prank(PROVIDER);
        staking.lock(RUN, node, 1);
    }

    function test_RevertsBeyondWhatIsAllocatedThere() public {
        staking.lock(RUN, node, 2000);
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 1001, 1000));
        staking.lock(RUN, node, 1001);
    }

    function test_DoesNotTouchAnotherRunsAllocation() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 1, 0));
        staking.lock(RUN + 1, node, 1);
    }

    function test_AddsUp() public {
        staking.lock(RUN, node, 1000);
        staking.lock(RUN, node, 2000);

        assertAllocation(RUN, node, 3000, 3000);
    }
}

contract StakingUnlockTest is StakingFixture {
    function test_RevertsForAnybodyButTheCoordinator() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotCoordinator.selector, PROVIDER));
        VM.prank(PROVIDER);
        staking.unlock(RUN, node, 1);
    }

    function test_RevertsBeyondTheLock() public {
        staking.lock(RUN, node, 10);
        VM.expectRevert(abi.encodeWithSelector(IStaking.InsufficientStake.selector, 11, 10));
        staking.unlock(RUN, node, 11);
    }

    function test_FreesTheLockAndLeavesTheAllocation() public {
        staking.lock(RUN, node, 1000);
        staking.unlock(RUN, node, 400);

        assertAllocation(RUN, node, 3000, 600);
    }
}

contract StakingSlashTest is StakingFixture {
    function test_RevertsForAnybodyButTheCoordinator() public {
        VM.expectRevert(abi.encodeWithSelector(IStaking.NotCoordinator.selector, PROVIDER));
        VM.prank(PROVIDER);
        staking.slash(RUN, node, 1);
    }

    function test_BurnsFromTheAllocation() public {
        VM.expectEmit(address(staking));
        emit IStaking.Slashed(PROVIDER, RUN, node, 1000);
        assertEq(staking.slash(RUN, node, 1000), 1000);

        assertAllocation(RUN, node, 2000, 0);
        assertEq(staking.free(PROVIDER), 5000);
        assertEq(token.totalSupply(), 9000);
        assertEq(token.balanceOf(address(staking)), 7000);
    }

    function test_ReachesUnbondingStakeToItsLastSecond() public {
        unstakeAs(PROVIDER, RUN, node, 2500);
        VM.warp(START + UNBONDING - 1);

        assertEq(staking.slash(RUN, node, 1000), 1000);

        assertAllocation(RUN, node, 0, 0);
        assertUnbonding(PROVIDER, 2000, 0);
    }

    function test_SparesStakeThatHasMatured() public {
        unstakeAs(PROVIDER, RUN, node, 2500);
        VM.warp(START + UNBONDING);

        assertEq(staking.slash(RUN, node, 1000), 500);
        assertEq(withdrawAs(PROVIDER), 2500);
    }

    function test_SparesWhatLeftOtherPlaces() public {
        unstakeAs(PROVIDER, 0, address(0), 5000);
        unstakeAs(PROVIDER, RUN, node, 3000);

        assertEq(staking.slash(RUN, node, 9000), 3000);
        assertUnbonding(PROVIDER, 5000, 0);
    }

    function test_SparesWhatOtherSubmissionsLock() public {
        staking.lock(RUN, node, 2900);

        assertEq(staking.slash(RUN, node, 1000), 100);
        assertAllocation(RUN, node, 2900, 2900);
    }

    function test_StrandsNothingWhenAnEntryInTheMiddleIsEmptied() public {
        unstakeAs(PROVIDER, 0, address(0), 10);
        unstakeAs(PROVIDER, RUN, node, 3000);
        unstakeAs(PROVIDER, 0, address(0), 20);
        staking.slash(RUN, node, 3000);
        VM.warp(START + UNBONDING);

        assertEq(withdrawAs(PROVIDER), 30);
        assertUnbonding(PROVIDER, 0, 0);
    }

    function test_BurnsNothingForANodeThatNobodyBacks() public {
        assertEq(staking.slash(RUN, STRANGER, 1000), 0);
        assertEq(token.totalSupply(), 10_000);
    }
}
