// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title A provider's stake on its way out: a short list, each entry with its own clock
/// @notice Entries never merge, so a later one cannot delay an earlier; emptied ones leave the list, so none is stranded.
library Unbondings {
    /// @notice Entries of one provider: what bounds every loop over them.
    uint256 internal constant LIMIT = 16;

    struct Entry {
        uint256 run;
        address node;
        uint40 readyAt;
        uint256 amount;
    }

    function isReady(Entry storage entry) internal view returns (bool) {
        return block.timestamp >= entry.readyAt;
    }

    /// @notice Removes the entries that can be withdrawn, and returns their sum.
    function takeReady(Entry[] storage entries) internal returns (uint256 sum) {
        for (uint256 i = entries.length; i > 0; --i) {
            if (!isReady(entries[i - 1])) continue;
            sum += entries[i - 1].amount;
            _remove(entries, i - 1);
        }
    }

    /// @notice Removes up to `wanted` of what left (`run`, `node`) and still unbonds, and returns how much that was.
    function takeUnbonding(Entry[] storage entries, uint256 run, address node, uint256 wanted)
        internal
        returns (uint256 taken)
    {
        for (uint256 i = entries.length; i > 0 && taken < wanted; --i) {
            Entry storage entry = entries[i - 1];
            if (entry.node != node || entry.run != run || isReady(entry)) continue;
            uint256 part = wanted - taken;
            if (part < entry.amount) {
                entry.amount -= part;
                return wanted;
            }
            taken += entry.amount;
            _remove(entries, i - 1);
        }
    }

    function _remove(Entry[] storage entries, uint256 i) private {
        uint256 last = entries.length - 1;
        if (i != last) entries[i] = entries[last];
        entries.pop();
    }
}
