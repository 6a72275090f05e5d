// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {StakeToken} from "../../src/StakeToken.sol";
import {Staking} from "../../src/Staking.sol";
import {Assertions} from "./Assertions.sol";
import {Signing} from "./Signing.sol";
import {VM} from "./Vm.sol";

/// @title Staking alone: this contract is its coordinator, one provider has one node with stake on a run
abstract contract StakingFixture is Assertions {
    uint256 internal constant START = 1_700_000_000;
    uint256 internal constant UNBONDING = 2000;
    uint256 internal constant RUN = 7;
    uint256 internal constant NODE_KEY = 0x40de;
    address internal constant PROVIDER = address(0xA11CE);
    address internal constant STRANGER = address(0xBAD);

    StakeToken internal token;
    Staking internal staking;
    address internal node = VM.addr(NODE_KEY);

    function setUp() public virtual {
        VM.warp(START);
        token = new StakeToken(1e30, 0);
        staking = new Staking(address(token), UNBONDING);
        staking.setCoordinator(address(this));
        fund(PROVIDER, 10_000);
        stakeAs(PROVIDER, 8000);
        authorize(PROVIDER, NODE_KEY);
        allocateAs(PROVIDER, RUN, node, 3000);
    }

    function fund(address who, uint256 amount) internal {
        VM.prank(who);
        token.faucet(amount);
        VM.prank(who);
        token.approve(address(staking), amount);
    }

    function stakeAs(address provider, uint256 amount) internal {
        VM.prank(provider);
        staking.stake(amount);
    }

    function authorize(address provider, uint256 nodeKey) internal {
        address node_ = VM.addr(nodeKey);
        bytes32 message = Signing.nodeAuthorization(provider, node_, staking.nonces(node_), type(uint256).max);
        bytes memory signature = Signing.sign(nodeKey, address(staking), message);
        VM.prank(provider);
        staking.authorizeNode(node_, type(uint256).max, signature);
    }

    function allocateAs(address provider, uint256 run, address node_, uint256 amount) internal {
        VM.prank(provider);
        staking.allocate(run, node_, amount);
    }

    function unstakeAs(address provider, uint256 run, address node_, uint256 amount) internal {
        VM.prank(provider);
        staking.unstake(run, node_, amount);
    }

    function withdrawAs(address provider) internal returns (uint256) {
        VM.prank(provider);
        return staking.withdraw();
    }

    function assertAllocation(uint256 run, address node_, uint256 amount, uint256 locked) internal view {
        (uint256 actualAmount, uint256 actualLocked) = staking.allocation(run, node_);
        assertEq(actualAmount, amount);
        assertEq(actualLocked, locked);
    }

    function assertUnbonding(address provider, uint256 pending, uint256 ready) internal view {
        (uint256 actualPending, uint256 actualReady) = staking.unbondingOf(provider);
        assertEq(actualPending, pending);
        assertEq(actualReady, ready);
    }
}
