// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {IStakeToken} from "./interfaces/IStakeToken.sol";

/// @title The stake token of test networks, with a faucet in place of a market
contract StakeToken is ERC20Burnable, IStakeToken {
    uint256 public immutable faucetCap;
    uint256 public immutable faucetCooldown;
    mapping(address who => uint256 time) public faucetReadyAt;

    /// @param cap most base units of one faucet call
    /// @param cooldown seconds between two faucet calls of one address, 0 for none
    constructor(uint256 cap, uint256 cooldown) ERC20("intellect-node test stake", "tSTAKE") {
        faucetCap = cap;
        faucetCooldown = cooldown;
    }

    /// @inheritdoc IStakeToken
    function faucet(uint256 amount) external {
        if (amount > faucetCap) revert FaucetCapExceeded(amount, faucetCap);
        uint256 readyAt = faucetReadyAt[msg.sender];
        if (block.timestamp < readyAt) revert FaucetCoolingDown(readyAt);

        faucetReadyAt[msg.sender] = block.timestamp + faucetCooldown;

        _mint(msg.sender, amount);
    }
}
