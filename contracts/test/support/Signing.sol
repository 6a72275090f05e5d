// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {VM} from "./Vm.sol";

/// @title EIP-712 written out a second time, so that tests do not sign with the code they test
library Signing {
    string internal constant DOMAIN =
        "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";

    function domainSeparator(uint256 chainId, address verifier) internal pure returns (bytes32) {
        return
            keccak256(
                abi.encode(keccak256(bytes(DOMAIN)), keccak256("intellect-node"), keccak256("1"), chainId, verifier)
            );
    }

    function digest(address verifier, bytes32 structHash) internal view returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", domainSeparator(block.chainid, verifier), structHash));
    }

    function sign(uint256 key, address verifier, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = VM.sign(key, digest(verifier, structHash));
        return abi.encodePacked(r, s, v);
    }

    /// @notice The other signature of the same message and key, which EIP-2 refuses.
    function malleated(bytes memory signature) internal pure returns (bytes memory) {
        (bytes32 r, bytes32 s, uint8 v) = split(signature);
        uint256 order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        return abi.encodePacked(r, bytes32(order - uint256(s)), v == 27 ? uint8(28) : uint8(27));
    }

    function split(bytes memory signature) internal pure returns (bytes32 r, bytes32 s, uint8 v) {
        for (uint256 i = 0; i < 32; ++i) {
            r |= bytes32(signature[i]) >> (8 * i);
            s |= bytes32(signature[32 + i]) >> (8 * i);
        }
        v = uint8(signature[64]);
    }

    function nodeAuthorization(address provider, address node, uint256 nonce, uint256 deadline)
        internal
        pure
        returns (bytes32)
    {
        bytes32 typeHash = keccak256("NodeAuthorization(address provider,address node,uint256 nonce,uint256 deadline)");
        return keccak256(abi.encode(typeHash, provider, node, nonce, deadline));
    }

    function batch(uint256 run, bytes32[] memory commitments) internal pure returns (bytes32) {
        bytes memory packed;
        for (uint256 i = 0; i < commitments.length; ++i) {
            packed = bytes.concat(packed, commitments[i]);
        }
        return keccak256(abi.encode(keccak256("Batch(uint256 run,bytes32 commitmentsHash)"), run, keccak256(packed)));
    }

    function fault(uint256 run, bytes32 commitment, uint32 leaf, uint8 check, bytes32 evidence)
        internal
        pure
        returns (bytes32)
    {
        bytes32 typeHash = keccak256("Fault(uint256 run,bytes32 commitment,uint32 leaf,uint8 check,bytes32 evidence)");
        return keccak256(abi.encode(typeHash, run, commitment, leaf, check, evidence));
    }
}
