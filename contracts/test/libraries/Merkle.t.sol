// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Merkle} from "../../src/libraries/Merkle.sol";
import {Assertions} from "../support/Assertions.sol";
import {VM} from "../support/Vm.sol";

/// @dev Against the tree as RFC 6962 defines it: split at the largest power of two below the count, and recurse.
abstract contract MerkleReference is Assertions {
    function _leaves(uint256 seed, uint256 count) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            leaves[i] = keccak256(abi.encode(seed, i));
        }
    }

    function _rootOf(bytes32[] memory leaves, uint256 from, uint256 to) internal pure returns (bytes32) {
        if (to - from == 1) return leaves[from];
        uint256 middle = from + _split(to - from);
        return keccak256(bytes.concat(hex"01", _rootOf(leaves, from, middle), _rootOf(leaves, middle, to)));
    }

    function _pathOf(bytes32[] memory leaves, uint256 i, uint256 from, uint256 to)
        internal
        pure
        returns (bytes32[] memory)
    {
        if (to - from == 1) return new bytes32[](0);
        uint256 middle = from + _split(to - from);
        if (i < middle) return _append(_pathOf(leaves, i, from, middle), _rootOf(leaves, middle, to));
        return _append(_pathOf(leaves, i, middle, to), _rootOf(leaves, from, middle));
    }

    function _split(uint256 count) private pure returns (uint256 power) {
        power = 1;
        while (power * 2 < count) {
            power *= 2;
        }
    }

    function _append(bytes32[] memory list, bytes32 last) internal pure returns (bytes32[] memory longer) {
        longer = new bytes32[](list.length + 1);
        for (uint256 i = 0; i < list.length; ++i) {
            longer[i] = list[i];
        }
        longer[list.length] = last;
    }
}

contract MerkleRootTest is MerkleReference {
    function rootOf(bytes32[] memory leaves) external pure returns (bytes32) {
        return Merkle.root(leaves);
    }

    function test_RevertsWithoutLeaves() public {
        VM.expectRevert(Merkle.NoLeaves.selector);
        this.rootOf(new bytes32[](0));
    }

    function test_ASingleLeafIsTheRoot() public pure {
        assertEq(Merkle.root(_leaves(1, 1)), keccak256(abi.encode(1, 0)));
    }

    function testFuzz_IsTheRootOfRfc6962(uint256 seed, uint8 size) public pure {
        uint256 count = uint256(size) % 40 + 1;
        bytes32[] memory leaves = _leaves(seed, count);
        bytes32 expected = _rootOf(leaves, 0, count);
        assertEq(Merkle.root(leaves), expected);
    }
}

contract MerkleVerifyTest is MerkleReference {
    function testFuzz_AcceptsEveryLeafByItsPathAndNothingElse(uint256 seed, uint8 size, uint8 which) public pure {
        uint256 count = uint256(size) % 40 + 1;
        uint256 i = uint256(which) % count;
        bytes32[] memory leaves = _leaves(seed, count);
        bytes32[] memory path = _pathOf(leaves, i, 0, count);
        bytes32 root = _rootOf(leaves, 0, count);

        assertTrue(Merkle.verify(path, leaves[i], i, count, root), "the leaf");
        assertTrue(!Merkle.verify(path, keccak256("other"), i, count, root), "another leaf");
        assertTrue(!Merkle.verify(_append(path, root), leaves[i], i, count, root), "a longer path");
        assertTrue(!Merkle.verify(path, leaves[i], i + count, count, root), "an index past the end");
        if (path.length == 0) return;
        assertTrue(!Merkle.verify(new bytes32[](path.length - 1), leaves[i], i, count, root), "a shorter path");
        path[path.length - 1] ^= bytes32(uint256(1));
        assertTrue(!Merkle.verify(path, leaves[i], i, count, root), "another sibling");
    }

    function test_AnInnerNodeIsNoLeaf() public pure {
        bytes32[] memory leaves = _leaves(1, 4);
        bytes32[] memory path = new bytes32[](1);
        path[0] = _rootOf(leaves, 2, 4);
        assertTrue(!Merkle.verify(path, _rootOf(leaves, 0, 2), 0, 4, _rootOf(leaves, 0, 4)), "two levels are needed");
    }
}
