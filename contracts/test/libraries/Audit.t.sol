// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Commitments} from "../../src/libraries/Commitments.sol";
import {Assertions} from "../support/Assertions.sol";

contract DrawTest is Assertions {
    function test_DrawsEveryLeafWhenAsManyAreExpected() public pure {
        uint256[] memory units = new uint256[](3);
        (units[0], units[1], units[2]) = (5, 1, 9);
        bool[] memory drawn = Commitments.draw(keccak256("key"), units, 3);
        assertTrue(drawn[0] && drawn[1] && drawn[2], "all");
    }

    function testFuzz_PutsOnePointInEveryStratum(bytes32 key, uint16 size, uint8 expected) public pure {
        uint256 count = uint256(expected) % 20 + 1;
        uint256 total = count + size;
        for (uint256 k = 0; k < count; ++k) {
            uint256 point = Commitments.drawPoint(key, k, total, count);
            assertTrue(point * count + count > k * total && point * count < (k + 1) * total, "within its stratum");
        }
    }

    function testFuzz_ALeafOfAllButAFewUnitsIsAlwaysDrawn(bytes32 key) public pure {
        uint256[] memory units = new uint256[](4);
        (units[0], units[1], units[2], units[3]) = (1, 1000, 1, 1);
        assertTrue(Commitments.draw(key, units, 2)[1], "a stratum lies within it");
    }
}

contract AuditorsTest is Assertions {
    function _rank(bytes32 key, uint32 leaf, address validator) private pure returns (uint256) {
        return uint256(keccak256(bytes.concat(key, bytes32(uint256(leaf)), bytes32(uint256(uint160(validator))))));
    }

    function test_OneValidatorAuditsAlone() public pure {
        address[] memory validators = new address[](1);
        validators[0] = address(7);
        (address first, address second) = Commitments.auditors(keccak256("key"), 3, validators);
        assertEq(first, address(7));
        assertEq(second, address(0));
    }

    function testFuzz_AreTheTwoOfLeastRank(bytes32 key, uint32 leaf, uint8 size) public pure {
        address[] memory validators = new address[](uint256(size) % 31 + 2);
        for (uint256 i = 0; i < validators.length; ++i) {
            validators[i] = address(uint160(uint256(keccak256(abi.encode(key, i)))));
        }
        (address first, address second) = Commitments.auditors(key, leaf, validators);
        uint256 below = 0;
        for (uint256 i = 0; i < validators.length; ++i) {
            if (_rank(key, leaf, validators[i]) < _rank(key, leaf, second)) ++below;
        }
        assertEq(below, 1);
        assertTrue(_rank(key, leaf, first) < _rank(key, leaf, second), "least first");
    }
}
