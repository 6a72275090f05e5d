// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunCoordinator} from "../../src/RunCoordinator.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {VM} from "../support/Vm.sol";

contract RunCoordinatorConstructorTest is NetworkFixture {
    function test_RevertsWithoutStaking() public {
        VM.expectRevert(IRunCoordinator.ZeroAddress.selector);
        new RunCoordinator(address(0));
    }
}

contract CreateRunTest is NetworkFixture {
    function _expectRefused(IRunCoordinator.RunParams memory p, bytes memory reason) private {
        VM.expectRevert(reason);
        coordinator.createRun(p, SPEC);
    }

    function test_RevertsWithoutATrainer() public {
        IRunCoordinator.RunParams memory p = params();
        p.trainer = address(0);
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.ZeroAddress.selector));
    }

    function test_RevertsWithoutUnits() public {
        IRunCoordinator.RunParams memory p = params();
        p.maxUnits = 0;
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidMaxUnits.selector, 0));
    }

    function test_RevertsUnlessSubmissionsOutliveTheirAudit() public {
        IRunCoordinator.RunParams memory p = params();
        p.windows.settleBy = 450; // 100 + 200 + 150
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidWindows.selector, 450, 451));
    }

    function test_RevertsUnlessUnbondingOutlivesADispute() public {
        IRunCoordinator.RunParams memory p = params();
        p.windows.panel = 550; // 1000 + 150 + 300 + 550 = 2000
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.UnbondingTooShort.selector, 2000, 2001));
    }

    function test_RevertsWithoutValidators() public {
        IRunCoordinator.RunParams memory p = params();
        p.validators = new address[](0);
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidValidators.selector));
    }

    function test_RevertsWithMoreValidatorsThanVotesHaveBits() public {
        IRunCoordinator.RunParams memory p = params();
        p.validators = new address[](33);
        for (uint256 i = 0; i < 33; ++i) {
            p.validators[i] = address(uint160(i + 1));
        }
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidValidators.selector));
    }

    function test_RevertsWhenAValidatorIsNamedTwice() public {
        IRunCoordinator.RunParams memory p = params();
        p.validators[1] = p.validators[0];
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidValidators.selector));
    }

    function test_RevertsWhenAValidatorIsTheZeroAddress() public {
        IRunCoordinator.RunParams memory p = params();
        p.validators[0] = address(0);
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidValidators.selector));
    }

    function test_RevertsWithoutAQuorum() public {
        IRunCoordinator.RunParams memory p = params();
        p.quorum = 0;
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidQuorum.selector, 0, 4));
    }

    function test_RevertsWhenTheQuorumIsLargerThanTheSet() public {
        IRunCoordinator.RunParams memory p = params();
        p.quorum = 5;
        _expectRefused(p, abi.encodeWithSelector(IRunCoordinator.InvalidQuorum.selector, 5, 4));
    }

    function test_CreatesARunThatAnybodyCanRead() public {
        IRunCoordinator.RunParams memory p = params();
        bytes32 digest = 0x6d76d6a408f17555266c5a2f6d163bf5188aeb7e60f114d5883ebe3946f75bb8;
        VM.expectEmit(address(coordinator));
        emit IRunCoordinator.RunCreated(2, OWNER, digest, p, SPEC);
        uint256 created = createRunAs(OWNER, p);

        assertEq(created, 2);
        assertEq(coordinator.runCount(), 2);
        assertEq(coordinator.runOwner(2), OWNER);
        assertEq(coordinator.specDigest(2), digest);
        assertEq(keccak256(abi.encode(coordinator.runParams(2))), keccak256(abi.encode(p)));
    }

    function test_AcceptsThirtyTwoValidators() public {
        IRunCoordinator.RunParams memory p = params();
        p.validators = new address[](32);
        for (uint256 i = 0; i < 32; ++i) {
            p.validators[i] = address(uint160(i + 1));
        }
        uint256 created = createRunAs(OWNER, p);

        assertEq(coordinator.runParams(created).validators[31], address(32));
    }
}

contract UnknownRunTest is NetworkFixture {
    function test_EveryViewOfItReverts() public {
        bytes memory reason = abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 9);
        VM.expectRevert(reason);
        coordinator.runOwner(9);
        VM.expectRevert(reason);
        coordinator.runParams(9);
        VM.expectRevert(reason);
        coordinator.specDigest(9);
        VM.expectRevert(reason);
        coordinator.runState(9);
    }

    function test_RunsCountFromOne() public {
        VM.expectRevert(abi.encodeWithSelector(IRunCoordinator.UnknownRun.selector, 0));
        coordinator.runOwner(0);
        assertEq(run, 1);
    }
}
