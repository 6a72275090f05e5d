// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunCoordinator} from "../../src/RunCoordinator.sol";
import {StakeToken} from "../../src/StakeToken.sol";
import {Staking} from "../../src/Staking.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {Assertions} from "./Assertions.sol";
import {Signing} from "./Signing.sol";
import {VM} from "./Vm.sol";

/// @title A run under way: four validators of whom three decide, one node with stake for six submissions, version 0 out
abstract contract NetworkFixture is Assertions {
    uint256 internal constant START = 1_700_000_000;
    uint256 internal constant POT = 100_000;
    uint256 internal constant STAKE = 9000;
    uint256 internal constant PRICE = 3;
    uint256 internal constant PENALTY = 1000;
    uint256 internal constant BOND = 50;
    uint40 internal constant UNITS = 400; // pays 1200
    uint256 internal constant PAY = 1200;
    uint256 internal constant DUE = 300; // seconds after submission
    uint256 internal constant SETTLE_BY = 1000;
    uint256 internal constant CONFIRM = 150;
    uint256 internal constant CONTEST = 300;
    uint256 internal constant GRACE = 60;
    uint256 internal constant UNBONDING = 2000;
    uint32 internal constant WHOLE_FILE = type(uint32).max;
    bytes internal constant SPEC = "{\"protocol\":1}";
    bytes32 internal constant ROOT = keccak256("root");
    bytes32 internal constant BEACON = keccak256("beacon");

    address internal constant OWNER = address(0x0123);
    address internal constant TRAINER = address(0x7EA);
    address internal constant PROVIDER = address(0xA11CE);
    address internal constant STRANGER = address(0xBAD);
    uint256 internal constant NODE_KEY = 0x40de;

    StakeToken internal token;
    Staking internal staking;
    RunCoordinator internal coordinator;
    uint256[] internal validatorKeys; // by ascending address
    address internal node = VM.addr(NODE_KEY);
    uint256 internal run;

    function setUp() public virtual {
        VM.warp(START);
        token = new StakeToken(1e30, 0);
        staking = new Staking(address(token), UNBONDING);
        coordinator = new RunCoordinator(address(staking));
        staking.setCoordinator(address(coordinator));
        for (uint256 key = 1; key <= 4; ++key) {
            _insertKey(key);
        }
        run = createRunAs(OWNER, params());
        fundRun(POT);
        addNode(PROVIDER, NODE_KEY, STAKE);
        publish(0);
    }

    // --- What others do

    function params() internal view returns (IRunCoordinator.RunParams memory p) {
        p.trainer = TRAINER;
        p.validators = new address[](validatorKeys.length);
        for (uint256 i = 0; i < validatorKeys.length; ++i) {
            p.validators[i] = VM.addr(validatorKeys[i]);
        }
        p.quorum = 3;
        p.pricePerUnit = uint128(PRICE);
        p.submissionBond = uint128(BOND);
        p.penalty = uint128(PENALTY);
        p.maxUnits = 500;
        p.maxOpen = 6;
        p.asyncLevel = 1;
        p.checkpointInterval = 10;
        p.trainerDelay = 500;
        p.windows = IRunCoordinator.Windows({
            available: 100,
            audit: 200,
            settleBy: uint32(SETTLE_BY),
            confirm: uint32(CONFIRM),
            contest: uint32(CONTEST),
            panel: 50,
            grace: uint32(GRACE)
        });
    }

    function createRunAs(address owner, IRunCoordinator.RunParams memory p) internal returns (uint256) {
        VM.prank(owner);
        return coordinator.createRun(p, SPEC);
    }

    function fundRun(uint256 amount) internal {
        token.faucet(amount);
        token.approve(address(coordinator), amount);
        coordinator.fundRun(run, amount);
    }

    function addNode(address provider, uint256 nodeKey, uint256 amount) internal {
        address node_ = VM.addr(nodeKey);
        bytes32 message = Signing.nodeAuthorization(provider, node_, staking.nonces(node_), type(uint256).max);
        bytes memory signature = Signing.sign(nodeKey, address(staking), message);
        VM.prank(provider);
        staking.authorizeNode(node_, type(uint256).max, signature);
        VM.prank(provider);
        token.faucet(amount);
        VM.prank(provider);
        token.approve(address(staking), amount);
        VM.prank(provider);
        staking.stake(amount);
        VM.prank(provider);
        staking.allocate(run, node_, amount);
    }

    function publish(uint64 version) internal {
        VM.prank(TRAINER);
        coordinator.publishCheckpoint(run, version, bytes32(uint256(version) + 1));
    }

    function submitUnits(uint64 version, uint64 slot, uint40 units) internal returns (bytes32) {
        VM.prank(node);
        return coordinator.submit(run, version, slot, ROOT, units, BEACON);
    }

    function submit(uint64 slot) internal returns (bytes32) {
        return submitUnits(0, slot, UNITS);
    }

    // --- What validators do

    function settle(bytes32[] memory commitments) internal {
        coordinator.settle(run, commitments, batchSignatures(commitments, 3));
    }

    function batchSignatures(bytes32[] memory commitments, uint256 count)
        internal
        view
        returns (bytes[] memory signatures)
    {
        signatures = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            signatures[i] = Signing.sign(validatorKeys[i], address(coordinator), Signing.batch(run, commitments));
        }
    }

    function faultOf(bytes32 commitment, uint32 leaf, uint8 check)
        internal
        view
        returns (IRunCoordinator.Fault memory)
    {
        return IRunCoordinator.Fault(run, commitment, leaf, check, keccak256("evidence"));
    }

    function signFault(uint256 key, IRunCoordinator.Fault memory f) internal view returns (bytes memory) {
        return Signing.sign(key, address(coordinator), Signing.fault(f.run, f.commitment, f.leaf, f.check, f.evidence));
    }

    /// @dev Validators number `first` to `first + count - 1` report `leaf` in one call.
    function reportBy(uint256 first, uint256 count, bytes32 commitment, uint32 leaf, uint8 check) internal {
        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](count);
        bytes[] memory signatures = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            faults[i] = faultOf(commitment, leaf, check);
            faults[i].evidence = keccak256(abi.encode("evidence of validator", first + i));
            signatures[i] = signFault(validatorKeys[first + i], faults[i]);
        }
        coordinator.report(run, faults, signatures);
    }

    function conclude(bytes32 commitment) internal {
        coordinator.conclude(run, listOf(commitment));
    }

    function listOf(bytes32 commitment) internal pure returns (bytes32[] memory list) {
        list = new bytes32[](1);
        list[0] = commitment;
    }

    // --- What is true afterwards

    function assertState(bytes32 commitment, IRunCoordinator.State expected) internal view {
        (,,, IRunCoordinator.State actual) = coordinator.submission(run, commitment);
        assertEq(uint256(actual), uint256(expected));
    }

    function assertPot(uint256 pot, uint256 reserved, uint256 open) internal view {
        (, uint256 actualPot, uint256 actualReserved, uint256 actualOpen,) = coordinator.runState(run);
        assertEq(actualPot, pot);
        assertEq(actualReserved, reserved);
        assertEq(actualOpen, open);
    }

    function assertStake(uint256 amount, uint256 locked) internal view {
        (uint256 actualAmount, uint256 actualLocked) = staking.allocation(run, node);
        assertEq(actualAmount, amount);
        assertEq(actualLocked, locked);
    }

    function assertLeaf(bytes32 commitment, uint32 leaf, uint256 firstAt, uint256 count, uint256 executableAt)
        internal
        view
    {
        (uint40 first, uint8 votes, uint40 executable) = coordinator.leafReport(run, commitment, leaf);
        assertEq(first, firstAt);
        assertEq(votes, count);
        assertEq(executable, executableAt);
    }

    function _insertKey(uint256 key) private {
        validatorKeys.push(key);
        for (uint256 i = validatorKeys.length - 1; i > 0; --i) {
            if (VM.addr(validatorKeys[i]) > VM.addr(validatorKeys[i - 1])) return;
            (validatorKeys[i], validatorKeys[i - 1]) = (validatorKeys[i - 1], validatorKeys[i]);
        }
    }
}
