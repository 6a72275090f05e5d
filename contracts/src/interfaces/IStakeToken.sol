// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title The faucet of a test network's stake token: anyone may mint, so its tokens are worth nothing
interface IStakeToken {
    error FaucetCapExceeded(uint256 amount, uint256 cap);
    error FaucetCoolingDown(uint256 readyAt);

    /// @notice Most tokens of one call.
    function faucetCap() external view returns (uint256);
    /// @notice Seconds between two calls of one address; 0 on devnets.
    function faucetCooldown() external view returns (uint256);
    /// @notice When `who` may call the faucet again.
    function faucetReadyAt(address who) external view returns (uint256);
    /// @notice Mints `amount` to the caller.
    function faucet(uint256 amount) external;
}
