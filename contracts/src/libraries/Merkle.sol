// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title The tree over a rollout file's leaves
/// @notice Preimages of leaves start with 0x00, inner nodes hash under 0x01, so that neither passes for the other. The
/// last node of a level with an odd count goes up unchanged. Source: RFC 6962, section 2.1, with keccak256.
library Merkle {
    error NoLeaves();

    function leaf(bytes memory preimage) internal pure returns (bytes32) {
        return keccak256(preimage);
    }

    function node(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x01), left, right));
    }

    /// @notice Root over `level`, which is overwritten.
    function root(bytes32[] memory level) internal pure returns (bytes32) {
        uint256 count = level.length;
        if (count == 0) revert NoLeaves();
        while (count > 1) {
            for (uint256 i = 0; i < count / 2; ++i) {
                level[i] = node(level[2 * i], level[2 * i + 1]);
            }
            if (count % 2 == 1) level[count / 2] = level[count - 1];
            count = (count + 1) / 2;
        }
        return level[0];
    }

    /// @notice Whether `hash` is leaf `index` of the `rows` under `expected`; `path` lists siblings bottom-up, only where
    /// one exists, so that its length and sides follow from `index` and `rows`.
    function verify(bytes32[] memory path, bytes32 hash, uint256 index, uint256 rows, bytes32 expected)
        internal
        pure
        returns (bool)
    {
        if (index >= rows) return false;
        uint256 used = 0;
        while (rows > 1) {
            bool isRight = index % 2 == 1;
            if (isRight || index + 1 < rows) {
                if (used == path.length) return false;
                hash = isRight ? node(path[used], hash) : node(hash, path[used]);
                ++used;
            }
            index /= 2;
            rows = (rows + 1) / 2;
        }
        return used == path.length && hash == expected;
    }
}
