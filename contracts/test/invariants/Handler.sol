// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunCoordinator} from "../../src/RunCoordinator.sol";
import {StakeToken} from "../../src/StakeToken.sol";
import {Staking} from "../../src/Staking.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {Signing} from "../support/Signing.sol";
import {VM} from "../support/Vm.sol";
import {Ghost} from "./Ghost.sol";

/// @title Two providers with a node each, four validators who sign anything, an owner, and time
contract Handler is NetworkFixture {
    Ghost public ghost;
    uint256 private clock = START;
    address[2] private providers = [PROVIDER, address(0xB0B)];
    uint256[2] private nodeKeys = [NODE_KEY, 0x40df];

    function setUp() public override {
        super.setUp();
        ghost = new Ghost();
        addNode(providers[1], nodeKeys[1], STAKE);
        ghost.stakes(2 * STAKE);
        ghost.funds(POT);
    }

    // --- What the invariants look at

    function tokenOf() external view returns (StakeToken) {
        return token;
    }

    function stakingOf() external view returns (Staking) {
        return staking;
    }

    function coordinatorOf() external view returns (RunCoordinator) {
        return coordinator;
    }

    function runOf() external view returns (uint256) {
        return run;
    }

    function party(uint256 i) public view returns (address provider, address node_) {
        return (providers[i], VM.addr(nodeKeys[i]));
    }

    // --- Actions

    function wait(uint16 time) external {
        clock += uint256(time) % 400 + 1;
        VM.warp(clock);
    }

    function stakeMore(uint8 who, uint16 amount) external {
        (address provider, address node_) = party(who % 2);
        uint256 more = uint256(amount) + 1;
        VM.prank(provider);
        token.faucet(more);
        VM.prank(provider);
        token.approve(address(staking), more);
        VM.prank(provider);
        staking.stake(more);
        ghost.stakes(more);
        if (staking.providerOf(node_) != provider) return;
        VM.prank(provider);
        staking.allocate(run, node_, more / 2 + 1);
    }

    function unstake(uint8 who, uint16 amount, bool fromFree) external {
        (address provider, address node_) = party(who % 2);
        (uint256 allocated, uint256 locked) = staking.allocation(run, node_);
        uint256 available = fromFree ? staking.free(provider) : allocated - locked;
        if (available == 0) return;
        uint256 part = uint256(amount) % available + 1;
        VM.prank(provider);
        try staking.unstake(fromFree ? 0 : run, fromFree ? address(0) : node_, part) {} catch {} // sixteen are pending
    }

    function withdraw(uint8 who) external {
        (address provider,) = party(who % 2);
        (, uint256 ready) = staking.unbondingOf(provider);
        if (ready == 0) return;
        VM.prank(provider);
        staking.withdraw();
    }

    function revokeOrReturn(uint8 who) external {
        (address provider, address node_) = party(who % 2);
        if (staking.providerOf(node_) == provider) {
            VM.prank(provider);
            staking.revokeNode(node_);
            return;
        }
        bytes32 message = Signing.nodeAuthorization(provider, node_, staking.nonces(node_), clock);
        bytes memory signature = Signing.sign(nodeKeys[who % 2], address(staking), message);
        VM.prank(provider);
        staking.authorizeNode(node_, clock, signature);
    }

    function submitOne(uint8 who, uint16 units) external {
        (, address node_) = party(who % 2);
        (uint64 checkpoints,,,,) = coordinator.runState(run);
        uint64 version = checkpoints - 1;
        uint40 amount = uint40(units % 500) + 1;
        uint64 slot = coordinator.slots(run, version, node_);
        VM.prank(node_);
        try coordinator.submit(run, version, slot, ROOT, amount, BEACON) returns (bytes32 commitment) {
            ghost.submitted(commitment, amount);
        } catch {} // revoked, too little stake, too many open, the pot is empty, or the run is over
    }

    function publishNext() external {
        (uint64 checkpoints,,,, uint40 endedAt) = coordinator.runState(run);
        (,, uint40 last) = coordinator.checkpoint(run, checkpoints - 1);
        if (endedAt != 0 || clock < uint256(last) + 10) return;
        publish(checkpoints);
    }

    function settleSome(uint8 first, uint8 size) external {
        uint256 count = ghost.count();
        if (count == 0) return;
        bytes32[] memory batch = new bytes32[](uint256(size) % 8 + 1);
        for (uint256 i = 0; i < batch.length; ++i) {
            batch[i] = ghost.commitments((uint256(first) + i) % count);
        }
        settle(batch);
        _observe(batch);
    }

    function reportLeaf(uint8 which, uint8 first, uint8 size, uint8 leaf) external {
        uint256 count = ghost.count();
        if (count == 0) return;
        uint256 validator = first % 4;
        reportBy(validator, uint256(size) % (4 - validator) + 1, ghost.commitments(which % count), leaf % 3, 8);
    }

    function voidOne(uint8 which, uint8 check) external {
        uint256 count = ghost.count();
        if (count == 0 || check % 8 != 0) return; // rare, so that others live long enough
        bytes32 commitment = ghost.commitments(which % count);
        uint256 supply = token.totalSupply();
        reportBy(0, 3, commitment, 0, 7);
        (,,, IRunCoordinator.State state) = coordinator.submission(run, commitment);
        bool burns = state == IRunCoordinator.State.Voided && supply != token.totalSupply();
        _record(commitment, burns ? BOND : 0);
    }

    function concludeOne(uint8 which) external {
        uint256 count = ghost.count();
        if (count == 0) return;
        bytes32 commitment = ghost.commitments(which % count);
        conclude(commitment);
        _observe(listOf(commitment));
    }

    function claim(uint8 who) external {
        (address provider,) = party(who % 2);
        if (coordinator.rewards(provider) == 0) return;
        VM.prank(provider);
        ghost.claims(coordinator.claim());
    }

    function fund(uint16 amount) external {
        (,,,, uint40 endedAt) = coordinator.runState(run);
        if (endedAt != 0) return;
        fundRun(amount);
        ghost.funds(amount);
    }

    function endOrWithdrawPot(uint8 luck) external {
        (,,, uint256 open, uint40 endedAt) = coordinator.runState(run);
        if (endedAt == 0 && luck > 8) return; // rare: most histories go on
        if (endedAt != 0 && (open != 0 || clock <= uint256(endedAt) + GRACE)) return;
        VM.prank(OWNER);
        if (endedAt == 0) coordinator.endRun(run);
        else ghost.withdrawsPot(coordinator.withdrawPot(run));
    }

    // --- Bookkeeping

    function _observe(bytes32[] memory touched) private {
        for (uint256 i = 0; i < touched.length; ++i) {
            (,,, IRunCoordinator.State state) = coordinator.submission(run, touched[i]);
            _record(touched[i], state == IRunCoordinator.State.Slashed ? PENALTY : 0);
        }
    }

    function _record(bytes32 commitment, uint256 burn) private {
        (,, uint40 units, IRunCoordinator.State state) = coordinator.submission(run, commitment);
        if (state == IRunCoordinator.State.Submitted || state == IRunCoordinator.State.Faulted) return;
        ghost.ended(commitment, state, state == IRunCoordinator.State.Settled ? units * PRICE : 0, burn);
    }
}
