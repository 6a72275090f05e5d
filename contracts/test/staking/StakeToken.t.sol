// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {StakeToken} from "../../src/StakeToken.sol";
import {IStakeToken} from "../../src/interfaces/IStakeToken.sol";
import {Assertions} from "../support/Assertions.sol";
import {VM} from "../support/Vm.sol";

contract StakeTokenFaucetTest is Assertions {
    uint256 private constant START = 1_700_000_000;
    StakeToken private token;

    function setUp() public {
        VM.warp(START);
        token = new StakeToken(100, 60);
    }

    function test_RevertsOverTheCap() public {
        VM.expectRevert(abi.encodeWithSelector(IStakeToken.FaucetCapExceeded.selector, 101, 100));
        token.faucet(101);
    }

    function test_RevertsWhileTheAddressCoolsDown() public {
        token.faucet(1);
        VM.warp(START + 59);
        VM.expectRevert(abi.encodeWithSelector(IStakeToken.FaucetCoolingDown.selector, START + 60));
        token.faucet(1);
    }

    function test_MintsToTheCallerAgainAfterTheCooldown() public {
        token.faucet(100);
        VM.warp(START + 60);
        token.faucet(40);

        assertEq(token.balanceOf(address(this)), 140);
        assertEq(token.totalSupply(), 140);
    }

    function test_OneAddressDoesNotDelayAnother() public {
        token.faucet(100);
        VM.prank(address(1));
        token.faucet(100);

        assertEq(token.balanceOf(address(1)), 100);
    }

    function test_MintsTwiceInOneBlockWithoutACooldown() public {
        StakeToken devnet = new StakeToken(100, 0);
        devnet.faucet(100);
        devnet.faucet(100);

        assertEq(devnet.balanceOf(address(this)), 200);
    }
}
