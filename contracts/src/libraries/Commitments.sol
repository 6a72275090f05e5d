// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title What a submission commits to, and what follows from it: its seed, its audit and its auditors
/// @notice Every `abi.encode` is of static values, one word each.
library Commitments {
    bytes32 internal constant COMMITMENT_TAG = bytes32("in/commitment/1");
    bytes32 internal constant SEED_TAG = bytes32("in/seed/1");
    bytes32 internal constant AUDIT_TAG = bytes32("in/audit/1");

    /// @notice One node's place in a run: version, slot and the beacon its seed was made with.
    struct Slot {
        uint256 run;
        address node;
        uint64 version;
        uint64 slot;
        bytes32 beacon;
    }

    function commitment(uint256 chainId, address coordinator, Slot memory s, bytes32 root, uint40 units)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encode(COMMITMENT_TAG, chainId, coordinator, s.run, s.node, s.version, s.slot, root, units, s.beacon)
        );
    }

    function seed(uint256 chainId, address coordinator, Slot memory s, bytes32 specDigest, bytes32 manifestRoot)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encode(
                SEED_TAG, chainId, coordinator, s.run, specDigest, s.version, manifestRoot, s.node, s.slot, s.beacon
            )
        );
    }

    function auditKey(bytes32 auditBeacon, bytes32 commitment_) internal pure returns (bytes32) {
        return keccak256(abi.encode(AUDIT_TAG, auditBeacon, commitment_));
    }

    /// @notice Which leaves are audited: one random point in each of `expected` equal strata of the committed units. Evenly
    /// spaced points would let a cheat align its bad leaves.
    function draw(bytes32 key, uint256[] memory leafUnits, uint256 expected)
        internal
        pure
        returns (bool[] memory drawn)
    {
        drawn = new bool[](leafUnits.length);
        bool all = expected >= leafUnits.length;
        uint256 total = 0;
        for (uint256 i = 0; i < leafUnits.length; ++i) {
            total += leafUnits[i];
            drawn[i] = all;
        }
        if (all) return drawn;
        for (uint256 k = 0; k < expected; ++k) {
            drawn[_leafAt(leafUnits, drawPoint(key, k, total, expected))] = true;
        }
    }

    /// @notice The point of stratum `k`, counted in units from 0.
    function drawPoint(bytes32 key, uint256 k, uint256 total, uint256 expected) internal pure returns (uint256) {
        uint256 low = k * total / expected;
        uint256 high = (k + 1) * total / expected;
        return low + uint256(keccak256(abi.encode(key, k))) % (high - low);
    }

    /// @notice The two validators (or the only one) whose hash with `leaf` is least, least first.
    function auditors(bytes32 key, uint32 leaf, address[] memory validators)
        internal
        pure
        returns (address first, address second)
    {
        uint256 least = type(uint256).max;
        uint256 next = type(uint256).max;
        for (uint256 i = 0; i < validators.length; ++i) {
            uint256 rank = uint256(keccak256(abi.encode(key, leaf, validators[i])));
            if (rank < least) {
                (next, second) = (least, first);
                (least, first) = (rank, validators[i]);
            } else if (rank < next) {
                (next, second) = (rank, validators[i]);
            }
        }
    }

    function _leafAt(uint256[] memory leafUnits, uint256 point) private pure returns (uint256 leaf) {
        uint256 end = leafUnits[0];
        while (point >= end) {
            end += leafUnits[++leaf];
        }
    }
}
