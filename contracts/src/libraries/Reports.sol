// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "../interfaces/IRunCoordinator.sol";

/// @title How reports on single leaves of one submission add up to a conviction, or to nothing
/// @notice A leaf needs its quorum within `confirm` of its own first report, or of when its audit is due if that is later:
/// an early report cannot close a leaf before the others have audited it. New leaves open only until `confirm` after the
/// submission's first report, or until its audit is due if that is later: so one validator cannot keep a submission frozen.
library Reports {
    struct Leaf {
        uint40 firstAt;
        uint40 executableAt;
        uint32 voters; // one bit per validator of the run
        uint8 count;
    }

    struct Case {
        uint40 firstAt; // of any leaf; 0 before the first report
        uint40 latestAt; // when the latest leaf was opened
        uint40 executableAt; // when the slash may run; 0 without a conviction
        mapping(uint32 leaf => Leaf) leaves;
    }

    /// @notice Counts validator number `index` against `leaf`, unless it has voted on it before or is late.
    function vote(Case storage case_, uint32 leaf, uint256 index, uint256 due, uint32 confirm)
        internal
        returns (bool counted, uint8 count)
    {
        Leaf storage entry = case_.leaves[leaf];
        uint32 bit = uint32(1 << index);
        if (entry.voters & bit != 0) return (false, entry.count);
        if (entry.firstAt == 0) {
            if (!_mayOpen(case_, due, confirm)) return (false, 0);
            if (case_.firstAt == 0) case_.firstAt = uint40(block.timestamp);
            case_.latestAt = uint40(block.timestamp);
            entry.firstAt = uint40(block.timestamp);
        } else if (block.timestamp > _closesAt(entry.firstAt, due, confirm)) {
            return (false, entry.count);
        }
        entry.voters |= bit;
        return (true, ++entry.count);
    }

    /// @notice Makes `leaf`'s quorum the submission's conviction, unless there is one already.
    function convict(Case storage case_, uint32 leaf, uint32 contest) internal returns (uint40 executableAt) {
        if (case_.executableAt != 0) return 0;
        executableAt = uint40(block.timestamp + contest);
        case_.executableAt = executableAt;
        case_.leaves[leaf].executableAt = executableAt;
    }

    /// @notice Whether no leaf can reach its quorum any more.
    function isUndecided(Case storage case_, uint256 due, uint32 confirm) internal view returns (bool) {
        return case_.executableAt == 0 && block.timestamp > _closesAt(case_.latestAt, due, confirm);
    }

    /// @notice When a submission of `submittedAt` has been open to audit for long enough.
    function dueAt(uint40 submittedAt, IRunCoordinator.Windows storage windows) internal view returns (uint256) {
        return uint256(submittedAt) + windows.available + windows.audit;
    }

    /// @dev The last second in which votes count on a leaf that was opened at `openedAt`.
    function _closesAt(uint40 openedAt, uint256 due, uint32 confirm) private pure returns (uint256) {
        return (openedAt > due ? openedAt : due) + confirm;
    }

    function _mayOpen(Case storage case_, uint256 due, uint32 confirm) private view returns (bool) {
        return case_.firstAt == 0 || block.timestamp <= uint256(case_.firstAt) + confirm || block.timestamp <= due;
    }
}
