// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title EIP-712 struct hashes of what nodes and validators sign
library Messages {
    string internal constant DOMAIN_NAME = "intellect-node";
    string internal constant DOMAIN_VERSION = "1";

    bytes32 internal constant NODE_AUTHORIZATION =
        keccak256("NodeAuthorization(address provider,address node,uint256 nonce,uint256 deadline)");
    bytes32 internal constant HAVE = keccak256("Have(bytes32 commitment,uint40 time)");
    bytes32 internal constant NO_FAULT = keccak256("NoFault(bytes32 commitment,uint32[] leaves,bytes32[] values)");
    bytes32 internal constant BATCH = keccak256("Batch(uint256 run,bytes32 commitmentsHash)");
    bytes32 internal constant FAULT =
        keccak256("Fault(uint256 run,bytes32 commitment,uint32 leaf,uint8 check,bytes32 evidence)");
    bytes32 internal constant CLEAR = keccak256("Clear(uint256 run,bytes32 commitment,uint32 leaf)");
    bytes32 internal constant PEER_IDENTITY = keccak256("PeerIdentity(address node,bytes peerId,uint256 deadline)");

    function nodeAuthorization(address provider, address node, uint256 nonce, uint256 deadline)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(NODE_AUTHORIZATION, provider, node, nonce, deadline));
    }

    function have(bytes32 commitment, uint40 time) internal pure returns (bytes32) {
        return keccak256(abi.encode(HAVE, commitment, time));
    }

    /// @notice `leaves` ascend; `values` is empty or has one entry per leaf. Packed arrays pad each element to a word.
    function noFault(bytes32 commitment, uint32[] memory leaves, bytes32[] memory values)
        internal
        pure
        returns (bytes32)
    {
        bytes32 leavesHash = keccak256(abi.encodePacked(leaves));
        return keccak256(abi.encode(NO_FAULT, commitment, leavesHash, keccak256(abi.encodePacked(values))));
    }

    function batch(uint256 run, bytes32[] memory commitments) internal pure returns (bytes32) {
        return keccak256(abi.encode(BATCH, run, keccak256(abi.encodePacked(commitments))));
    }

    function fault(uint256 run, bytes32 commitment, uint32 leaf, uint8 check, bytes32 evidence)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(FAULT, run, commitment, leaf, check, evidence));
    }

    function clear(uint256 run, bytes32 commitment, uint32 leaf) internal pure returns (bytes32) {
        return keccak256(abi.encode(CLEAR, run, commitment, leaf));
    }

    function peerIdentity(address node, bytes memory peerId, uint256 deadline) internal pure returns (bytes32) {
        return keccak256(abi.encode(PEER_IDENTITY, node, keccak256(peerId), deadline));
    }
}
