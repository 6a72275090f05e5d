// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {RunCoordinator} from "../../src/RunCoordinator.sol";
import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";
import {Commitments} from "../../src/libraries/Commitments.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Messages} from "../../src/libraries/Messages.sol";
import {NetworkFixture} from "../support/NetworkFixture.sol";
import {Signing} from "../support/Signing.sol";
import {VM} from "../support/Vm.sol";

/// @dev The protocol by example: what `tests/vectors/protocol1.json` says, for the parts that a contract may compute.
abstract contract VectorFixture is NetworkFixture {
    string internal json;
    uint256 internal chainId;
    address internal verifier;
    uint256 internal vectorRun;

    function setUp() public virtual override {
        super.setUp();
        json = VM.readFile("tests/vectors/protocol1.json");
        chainId = VM.parseJsonUint(json, ".inputs.chainId");
        verifier = VM.parseJsonAddress(json, ".inputs.contract");
        vectorRun = VM.parseJsonUint(json, ".inputs.run");
    }

    function _slot() internal view returns (Commitments.Slot memory) {
        return Commitments.Slot({
            run: vectorRun,
            node: VM.parseJsonAddress(json, ".inputs.node"),
            version: uint64(VM.parseJsonUint(json, ".inputs.version")),
            slot: uint64(VM.parseJsonUint(json, ".inputs.slot")),
            beacon: VM.parseJsonBytes32(json, ".inputs.beacon")
        });
    }

    function _expected(string memory key) internal view returns (bytes32) {
        return VM.parseJsonBytes32(json, string.concat(".expected.", key));
    }
}

contract CommitmentVectorsTest is VectorFixture {
    function test_Commitment() public view {
        uint40 units = uint40(VM.parseJsonUint(json, ".expected.units"));
        assertEq(Commitments.commitment(chainId, verifier, _slot(), _expected("root"), units), _expected("commitment"));
    }

    function test_Seed() public view {
        bytes32 spec = VM.parseJsonBytes32(json, ".inputs.specDigest");
        bytes32 manifest = VM.parseJsonBytes32(json, ".inputs.manifestRoot");
        assertEq(Commitments.seed(chainId, verifier, _slot(), spec, manifest), _expected("seed"));
    }

    function test_AuditKey() public view {
        bytes32 beacon = VM.parseJsonBytes32(json, ".inputs.auditBeacon");
        assertEq(Commitments.auditKey(beacon, _expected("commitment")), _expected("audit_key"));
    }

    function test_Draw() public view {
        uint256[] memory units = VM.parseJsonUintArray(json, ".expected.unit_list");
        uint256[] memory points = VM.parseJsonUintArray(json, ".expected.draw.x");
        uint256[] memory leaves = VM.parseJsonUintArray(json, ".expected.draw.leaves");
        bytes32 key = _expected("audit_key");
        uint256 total = VM.parseJsonUint(json, ".expected.units");
        for (uint256 k = 0; k < points.length; ++k) {
            assertEq(Commitments.drawPoint(key, k, total, points.length), points[k]);
        }
        bool[] memory drawn = Commitments.draw(key, units, VM.parseJsonUint(json, ".inputs.A"));
        uint256 count = 0;
        for (uint256 i = 0; i < drawn.length; ++i) {
            if (drawn[i]) assertEq(leaves[count++], i);
        }
        assertEq(count, leaves.length);
    }

    function test_Auditors() public view {
        address[] memory validators = VM.parseJsonAddressArray(json, ".inputs.validators");
        for (uint256 i = 0; i < 2; ++i) {
            string memory entry = i == 0 ? ".expected.auditors[0]" : ".expected.auditors[1]";
            uint32 leaf = uint32(VM.parseJsonUint(json, string.concat(entry, ".leaf")));
            address[] memory pair = VM.parseJsonAddressArray(json, string.concat(entry, ".validators"));
            (address first, address second) = Commitments.auditors(_expected("audit_key"), leaf, validators);
            bool same = (first == pair[0] && second == pair[1]) || (first == pair[1] && second == pair[0]);
            assertTrue(same, "the auditors are a set");
        }
    }
}

contract MerkleVectorsTest is VectorFixture {
    /// @dev Rollout 1 of the vectors, written out by hand: group 0, index 1, prompt 1 2 3, output 2, proof 258 x 0xcd.
    function test_Leaf() public view {
        bytes memory proof = new bytes(258);
        for (uint256 i = 0; i < 258; ++i) {
            proof[i] = 0xcd;
        }
        bytes memory preimage = abi.encodePacked(
            hex"00010000000600000000000100", // leaf 1 of 6 rows
            hex"0c000000010000000200000003000000",
            hex"0400000002000000",
            hex"04000000000000c0", // -2.0
            hex"02010000",
            proof,
            hex"0000000000" // ended with an EOS id, reward 0
        );
        assertEq(preimage.length, 312);
        assertEq(Merkle.leaf(preimage), VM.parseJsonBytes32Array(json, ".expected.leaves")[1]);
    }

    function test_Root() public view {
        assertEq(Merkle.root(VM.parseJsonBytes32Array(json, ".expected.leaves")), _expected("root"));
    }

    function test_Path() public view {
        bytes32[] memory path = VM.parseJsonBytes32Array(json, ".expected.merkle_path_of_leaf_4");
        bytes32 leaf = VM.parseJsonBytes32Array(json, ".expected.leaves")[4];
        assertTrue(Merkle.verify(path, leaf, 4, 6, _expected("root")), "leaf 4");
        assertTrue(!Merkle.verify(path, leaf, 5, 6, _expected("root")), "not leaf 5");
    }
}

contract MessageVectorsTest is VectorFixture {
    function _digest(bytes32 structHash) private view returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", _expected("domain_separator"), structHash));
    }

    function test_DomainSeparator() public view {
        assertEq(Signing.domainSeparator(chainId, verifier), _expected("domain_separator"));
    }

    function test_Have() public view {
        assertEq(_digest(Messages.have(_expected("commitment"), 1_700_000_000)), _expected("eip712_digest_Have"));
    }

    function test_NoFault() public view {
        uint256[] memory drawn = VM.parseJsonUintArray(json, ".expected.draw.leaves");
        uint32[] memory leaves = new uint32[](drawn.length);
        for (uint256 i = 0; i < drawn.length; ++i) {
            leaves[i] = uint32(drawn[i]);
        }
        bytes32 hash = Messages.noFault(_expected("commitment"), leaves, new bytes32[](0));
        assertEq(_digest(hash), _expected("eip712_digest_NoFault"));
    }

    function test_Batch() public view {
        bytes32[] memory batch = VM.parseJsonBytes32Array(json, ".inputs.batch");
        assertEq(_digest(Messages.batch(vectorRun, batch)), _expected("eip712_digest_Batch"));
    }

    function test_Fault() public view {
        bytes32 hash = Messages.fault(vectorRun, _expected("commitment"), 1, 8, _evidence());
        assertEq(_digest(hash), _expected("eip712_digest_Fault"));
    }

    /// @dev The vectors have none of these three: their types are written out here from the protocol.
    function test_TheOtherTypes() public pure {
        bytes32 clear = keccak256("Clear(uint256 run,bytes32 commitment,uint32 leaf)");
        assertEq(Messages.clear(7, ROOT, 4), keccak256(abi.encode(clear, 7, ROOT, 4)));
        bytes32 identity = keccak256("PeerIdentity(address node,bytes peerId,uint256 deadline)");
        bytes memory peerId = hex"0024080112";
        assertEq(
            Messages.peerIdentity(STRANGER, peerId, 9), keccak256(abi.encode(identity, STRANGER, keccak256(peerId), 9))
        );
        assertEq(
            Messages.nodeAuthorization(PROVIDER, STRANGER, 3, 9), Signing.nodeAuthorization(PROVIDER, STRANGER, 3, 9)
        );
    }

    function test_TheCoordinatorChecksThoseVeryDigests() public {
        VM.chainId(chainId);
        VM.etch(verifier, address(coordinator).code);
        coordinator = RunCoordinator(verifier);
        while (coordinator.runCount() < vectorRun) {
            run = createRunAs(OWNER, _oneDecides());
        }
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = _signRaw(_expected("eip712_digest_Batch"));
        coordinator.settle(run, VM.parseJsonBytes32Array(json, ".inputs.batch"), signatures);

        IRunCoordinator.Fault[] memory faults = new IRunCoordinator.Fault[](1);
        faults[0] = IRunCoordinator.Fault(run, _expected("commitment"), 1, 8, _evidence());
        signatures[0] = _signRaw(_expected("eip712_digest_Fault"));
        coordinator.report(run, faults, signatures);

        signatures[0] = _signRaw(_expected("eip712_digest_Have"));
        VM.expectPartialRevert(IRunCoordinator.NotValidator.selector);
        coordinator.report(run, faults, signatures);
    }

    function _oneDecides() private view returns (IRunCoordinator.RunParams memory p) {
        p = params();
        p.quorum = 1;
    }

    function _evidence() private pure returns (bytes32) {
        return 0x9999999999999999999999999999999999999999999999999999999999999999;
    }

    function _signRaw(bytes32 digest) private view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = VM.sign(validatorKeys[0], digest);
        return abi.encodePacked(r, s, v);
    }
}
