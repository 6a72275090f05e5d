// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title The part of forge's cheatcodes that these tests use
interface Vm {
    function addr(uint256 key) external pure returns (address);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function warp(uint256 time) external;
    function roll(uint256 blockNumber) external;
    function chainId(uint256 id) external;
    function etch(address where, bytes calldata code) external;
    function prank(address caller) external;
    function expectRevert() external;
    function expectRevert(bytes calldata data) external;
    function expectRevert(bytes4 selector) external;
    function expectPartialRevert(bytes4 selector) external;
    function expectEmit(address emitter) external;
    function startSnapshotGas(string calldata name) external;
    function stopSnapshotGas() external returns (uint256 gasUsed);
    function readFile(string calldata path) external view returns (string memory);
    function parseJsonUint(string calldata json, string calldata key) external pure returns (uint256);
    function parseJsonUintArray(string calldata json, string calldata key) external pure returns (uint256[] memory);
    function parseJsonAddress(string calldata json, string calldata key) external pure returns (address);
    function parseJsonAddressArray(string calldata json, string calldata key) external pure returns (address[] memory);
    function parseJsonBytes32(string calldata json, string calldata key) external pure returns (bytes32);
    function parseJsonBytes32Array(string calldata json, string calldata key) external pure returns (bytes32[] memory);
}

/// @dev Where forge answers: the last 20 bytes of keccak256("hevm cheat code").
Vm constant VM = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);
