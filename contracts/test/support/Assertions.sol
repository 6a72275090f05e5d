// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Assertions that fail with both sides
abstract contract Assertions {
    error NotEqual(bytes32 actual, bytes32 expected);
    error NotTrue(string what);

    function assertEq(uint256 actual, uint256 expected) internal pure {
        assertEq(bytes32(actual), bytes32(expected));
    }

    function assertEq(address actual, address expected) internal pure {
        assertEq(bytes32(uint256(uint160(actual))), bytes32(uint256(uint160(expected))));
    }

    function assertEq(bytes32 actual, bytes32 expected) internal pure {
        if (actual != expected) revert NotEqual(actual, expected);
    }

    function assertTrue(bool condition, string memory what) internal pure {
        if (!condition) revert NotTrue(what);
    }
}
