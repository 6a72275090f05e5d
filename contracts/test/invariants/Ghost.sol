// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../../src/interfaces/IRunCoordinator.sol";

/// @title What a history should have added up to, kept apart from the contracts under test
contract Ghost {
    bytes32[] public commitments;
    mapping(bytes32 commitment => IRunCoordinator.State) public end; // None until one end was seen
    mapping(bytes32 commitment => uint40) public unitsOf;
    uint256 public staked;
    uint256 public funded;
    uint256 public burnt;
    uint256 public earned;
    uint256 public claimed;
    uint256 public potWithdrawn;

    function count() external view returns (uint256) {
        return commitments.length;
    }

    function submitted(bytes32 commitment, uint40 units) external {
        commitments.push(commitment);
        unitsOf[commitment] = units;
    }

    function ended(bytes32 commitment, IRunCoordinator.State state, uint256 pay, uint256 burn) external {
        if (end[commitment] != IRunCoordinator.State.None) return;
        end[commitment] = state;
        earned += pay;
        burnt += burn;
    }

    function stakes(uint256 amount) external {
        staked += amount;
    }

    function funds(uint256 amount) external {
        funded += amount;
    }

    function claims(uint256 amount) external {
        claimed += amount;
    }

    function withdrawsPot(uint256 amount) external {
        potWithdrawn += amount;
    }
}
