// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunCoordinator} from "../../src/RunCoordinator.sol";
import {StakeToken} from "../../src/StakeToken.sol";
import {Staking} from "../../src/Staking.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {Assertions} from "../support/Assertions.sol";
import {Ghost} from "./Ghost.sol";
import {Handler} from "./Handler.sol";

contract NetworkInvariantTest is Assertions {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    uint256 private constant PRICE = 3;
    uint256 private constant BONDS = 1050; // penalty and submission bond of one submission

    Handler private handler;
    Ghost private ghost;
    StakeToken private token;
    Staking private staking;
    RunCoordinator private coordinator;
    uint256 private run;

    function setUp() public {
        handler = new Handler();
        handler.setUp();
        ghost = handler.ghost();
        token = handler.tokenOf();
        staking = handler.stakingOf();
        coordinator = handler.coordinatorOf();
        run = handler.runOf();
    }

    /// @dev forge asks for these two.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory actions = new bytes4[](14);
        actions[0] = Handler.wait.selector;
        actions[1] = Handler.stakeMore.selector;
        actions[2] = Handler.unstake.selector;
        actions[3] = Handler.withdraw.selector;
        actions[4] = Handler.revokeOrReturn.selector;
        actions[5] = Handler.submitOne.selector;
        actions[6] = Handler.publishNext.selector;
        actions[7] = Handler.settleSome.selector;
        actions[8] = Handler.reportLeaf.selector;
        actions[9] = Handler.voidOne.selector;
        actions[10] = Handler.concludeOne.selector;
        actions[11] = Handler.claim.selector;
        actions[12] = Handler.endOrWithdrawPot.selector;
        actions[13] = Handler.fund.selector;
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), actions);
    }

    function _stakeOf(uint256 i) private view returns (uint256 sum, uint256 allocated, uint256 locked) {
        (address provider, address node) = handler.party(i);
        (allocated, locked) = staking.allocation(run, node);
        (uint256 pending, uint256 ready) = staking.unbondingOf(provider);
        assertTrue(ready <= pending, "what is ready is pending");
        sum = staking.free(provider) + allocated + pending;
    }

    function invariant_StakesAndUnbondingsAreCovered() public view {
        (uint256 first,,) = _stakeOf(0);
        (uint256 second,,) = _stakeOf(1);
        assertEq(token.balanceOf(address(staking)), first + second);
    }

    function invariant_PotReservesAndRewardsAreCovered() public view {
        (address first,) = handler.party(0);
        (address second,) = handler.party(1);
        (, uint256 pot, uint256 reserved,,) = coordinator.runState(run);
        uint256 owed = pot + reserved + coordinator.rewards(first) + coordinator.rewards(second);
        assertEq(token.balanceOf(address(coordinator)), owed);
    }

    function invariant_OnlySettledWorkIsPaidAndOnlyOnce() public view {
        (address first,) = handler.party(0);
        (address second,) = handler.party(1);
        (, uint256 pot, uint256 reserved,,) = coordinator.runState(run);
        assertEq(coordinator.rewards(first) + coordinator.rewards(second) + ghost.claimed(), ghost.earned());
        assertEq(pot + reserved + ghost.earned() + ghost.potWithdrawn(), ghost.funded());
    }

    function invariant_OpenSubmissionsReserveTheirPayAndLockTheirBonds() public view {
        (,, uint256 reserved, uint256 open,) = coordinator.runState(run);
        (, uint256 firstAllocated, uint256 firstLocked) = _stakeOf(0);
        (, uint256 secondAllocated, uint256 secondLocked) = _stakeOf(1);
        uint256 units = 0;
        uint256 live = 0;
        for (uint256 i = 0; i < ghost.count(); ++i) {
            bytes32 commitment = ghost.commitments(i);
            if (ghost.end(commitment) != IRunCoordinator.State.None) continue;
            units += ghost.unitsOf(commitment);
            ++live;
        }
        assertEq(open, live);
        assertEq(reserved, units * PRICE);
        assertEq(firstLocked + secondLocked, open * BONDS);
        assertTrue(firstLocked <= firstAllocated && secondLocked <= secondAllocated, "locks are covered");
    }

    function invariant_AFinalSubmissionNeverChanges() public view {
        for (uint256 i = 0; i < ghost.count(); ++i) {
            bytes32 commitment = ghost.commitments(i);
            if (ghost.end(commitment) == IRunCoordinator.State.None) continue;
            (,,, IRunCoordinator.State state) = coordinator.submission(run, commitment);
            assertEq(uint256(state), uint256(ghost.end(commitment)));
        }
    }

    function invariant_SlashedIsWhatTheRulesBurnAndAtMostTheStake() public view {
        (uint256 first,,) = _stakeOf(0);
        (uint256 second,,) = _stakeOf(1);
        (address one,) = handler.party(0);
        (address two,) = handler.party(1);
        assertTrue(ghost.burnt() <= ghost.staked(), "slashed <= staked");
        uint256 circulating = token.totalSupply() - token.balanceOf(address(staking));
        assertEq(token.totalSupply() + ghost.burnt(), ghost.staked() + ghost.funded());
        assertTrue(first + second + ghost.burnt() <= ghost.staked(), "no stake from nowhere");
        assertTrue(token.balanceOf(one) + token.balanceOf(two) <= circulating, "all tokens are somewhere");
    }
}
