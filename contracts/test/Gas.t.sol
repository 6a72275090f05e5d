// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "./support/NetworkFixture.sol";
import {VM} from "./support/Vm.sol";

/// @dev What a node, a validator and a provider pay; kept in `contracts/snapshots/GasTest.json`.
contract GasTest is NetworkFixture {
    function setUp() public override {
        super.setUp();
        IRunCoordinator.RunParams memory p = params();
        p.maxOpen = 64;
        run = createRunAs(OWNER, p);
        fundRun(POT);
        publish(0);
        addNode(address(0xB0B), 0x40df, 64 * 1050);
        node = VM.addr(0x40df);
    }

    function _batch(uint64 count) private returns (bytes32[] memory batch) {
        batch = new bytes32[](count);
        for (uint64 slot = 0; slot < count; ++slot) {
            batch[slot] = submit(slot);
        }
    }

    function _settle(uint64 count, string memory name) private {
        bytes32[] memory batch = _batch(count);
        bytes[] memory signatures = batchSignatures(batch, 3);
        VM.warp(START + DUE);
        VM.startSnapshotGas(name);
        coordinator.settle(run, batch, signatures);
        VM.stopSnapshotGas();
        assertState(batch[count - 1], IRunCoordinator.State.Settled);
    }

    function _report(bytes32 commitment, uint256 first, uint256 count, uint8 check, string memory name) private {
        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](count);
        bytes[] memory signatures = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            faults[i] = faultOf(commitment, 5, check);
            signatures[i] = signFault(validatorKeys[first + i], faults[i]);
        }
        VM.startSnapshotGas(name);
        coordinator.report(run, faults, signatures);
        VM.stopSnapshotGas();
    }

    function _conclude(bytes32 commitment, string memory name) private {
        bytes32[] memory list = listOf(commitment);
        VM.startSnapshotGas(name);
        coordinator.conclude(run, list);
        VM.stopSnapshotGas();
    }

    function test_Submit() public {
        VM.prank(node);
        VM.startSnapshotGas("submit, a node's first");
        coordinator.submit(run, 0, 0, ROOT, UNITS, BEACON);
        VM.stopSnapshotGas();
        VM.prank(node);
        VM.startSnapshotGas("submit, its next");
        coordinator.submit(run, 0, 1, ROOT, UNITS, BEACON);
        VM.stopSnapshotGas();
    }

    function test_SettleOne() public {
        _settle(1, "settle 1, quorum 3");
    }

    function test_SettleFifty() public {
        _settle(50, "settle 50, quorum 3");
    }

    function test_Claim() public {
        bytes32[] memory batch = _batch(1);
        VM.warp(START + DUE);
        settle(batch);
        VM.prank(address(0xB0B));
        VM.startSnapshotGas("claim");
        coordinator.claim();
        VM.stopSnapshotGas();
    }

    function test_Slash() public {
        bytes32 commitment = submit(0);
        _report(commitment, 0, 1, 8, "report, first Fault");
        _report(commitment, 1, 1, 8, "report, a Fault more");
        _report(commitment, 2, 1, 8, "report, the quorum's Fault");
        VM.warp(START + CONTEST);
        _conclude(commitment, "conclude, slash");
        assertState(commitment, IRunCoordinator.State.Slashed);
    }

    function test_Void() public {
        bytes32 commitment = submit(0);
        _report(commitment, 0, 3, 3, "report, void by a quorum of 3");
        assertState(commitment, IRunCoordinator.State.Voided);
    }

    function test_Expire() public {
        bytes32 commitment = submit(0);
        VM.warp(START + SETTLE_BY + 1);
        _conclude(commitment, "conclude, expire");
        assertState(commitment, IRunCoordinator.State.Expired);
    }
}
