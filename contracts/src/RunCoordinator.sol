// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IRunCoordinator} from "./interfaces/IRunCoordinator.sol";
import {Messages} from "./libraries/Messages.sol";
import {Reports} from "./libraries/Reports.sol";
import {Runs} from "./Runs.sol";
import {Submissions} from "./Submissions.sol";

/// @title Runs and their submissions, with the reports that can void or slash one
contract RunCoordinator is Submissions {
    using Reports for Reports.Case;

    uint8 private constant DUPLICATES = 5; // telemetry: nobody answers for it
    uint8 private constant TOPLOC = 8; // this one and the next are the ones that slash
    uint8 private constant SAMPLING = 9;
    uint8 private constant LAST_CHECK = 10;

    mapping(uint256 run => mapping(bytes32 commitment => Reports.Case)) private _cases;

    /// @param staking_ the `Staking` whose coordinator this contract becomes
    constructor(address staking_) Runs(staking_) {}

    /// @inheritdoc IRunCoordinator
    function report(uint256 run, Fault[] calldata faults, bytes[] calldata signatures) external {
        Run storage r = _run(run);
        _requireBatch(faults.length);
        if (faults.length != signatures.length) revert LengthMismatch(faults.length, signatures.length);

        uint256 i = 0;
        while (i < faults.length) {
            uint8 check = faults[i].check;
            if (check == DUPLICATES || check > LAST_CHECK) revert UnknownCheck(check);
            if (check == TOPLOC || check == SAMPLING) {
                _countFault(run, r, faults[i], signatures[i]);
                ++i;
            } else {
                i = _voidByQuorum(run, r, faults, signatures, i);
            }
        }
    }

    /// @inheritdoc IRunCoordinator
    function conclude(uint256 run, bytes32[] calldata commitments) external {
        Run storage r = _run(run);
        _requireBatch(commitments.length);

        for (uint256 i = 0; i < commitments.length; ++i) {
            Submission storage s = submission[run][commitments[i]];
            if (s.state == State.Submitted && _isExpired(r, s)) _expire(run, r, commitments[i], s);
            else if (s.state == State.Faulted) _concludeFaulted(run, r, commitments[i], s);
        }
    }

    // --- Views

    /// @inheritdoc IRunCoordinator
    function leafReport(uint256 run, bytes32 commitment, uint32 leaf)
        external
        view
        returns (uint40 firstAt, uint8 count, uint40 executableAt)
    {
        Reports.Leaf storage entry = _cases[run][commitment].leaves[leaf];
        return (entry.firstAt, entry.count, entry.executableAt);
    }

    function _digestOf(Fault calldata fault) private view returns (bytes32) {
        return _hashTypedDataV4(Messages.fault(fault.run, fault.commitment, fault.leaf, fault.check, fault.evidence));
    }

    /// @dev Whether a report can still change what becomes of the submission.
    function _isReportable(Run storage r, Submission storage s) private view returns (bool) {
        return s.state == State.Faulted || (s.state == State.Submitted && !_isExpired(r, s));
    }

    // --- Reports

    function _countFault(uint256 run, Run storage r, Fault calldata fault, bytes calldata signature) private {
        if (fault.run != run) revert WrongRun(run, fault.run);
        address validator = _recover(_digestOf(fault), signature);
        uint256 index = _validatorIndex(run, validator);
        Submission storage s = submission[run][fault.commitment];
        if (!_isReportable(r, s)) return;
        Reports.Case storage case_ = _cases[run][fault.commitment];
        uint256 due = Reports.dueAt(s.submittedAt, r.params.windows);
        (bool counted, uint8 count) = case_.vote(fault.leaf, index, due, r.params.windows.confirm);
        if (!counted) return;

        s.state = State.Faulted;

        emit Reported(run, fault.commitment, validator, fault.leaf, fault.check, fault.evidence, count);
        if (count == r.params.quorum) _convict(run, r, case_, fault);
    }

    function _convict(uint256 run, Run storage r, Reports.Case storage case_, Fault calldata fault) private {
        uint40 executableAt = case_.convict(fault.leaf, r.params.windows.contest);
        if (executableAt != 0) emit Convicted(run, fault.commitment, fault.leaf, fault.check, executableAt);
    }

    /// @dev Reads the faults from `first` that share its commitment, leaf and check; returns where the next ones start.
    function _voidByQuorum(
        uint256 run,
        Run storage r,
        Fault[] calldata faults,
        bytes[] calldata signatures,
        uint256 first
    ) private returns (uint256 i) {
        Fault calldata fault = faults[first];
        address previous = address(0);
        for (i = first; i < faults.length && _isSameFinding(fault, faults[i]); ++i) {
            if (faults[i].run != run) revert WrongRun(run, faults[i].run);
            previous = _nextSigner(run, previous, _digestOf(faults[i]), signatures[i]);
        }
        if (i - first < r.params.quorum) revert QuorumNotReached(i - first, r.params.quorum);
        Submission storage s = submission[run][fault.commitment];
        if (!_isReportable(r, s) || _cases[run][fault.commitment].executableAt != 0) return i;

        _void(run, r, fault.commitment, s, fault.check);
    }

    function _isSameFinding(Fault calldata left, Fault calldata right) private pure returns (bool) {
        return left.commitment == right.commitment && left.leaf == right.leaf && left.check == right.check;
    }

    function _concludeFaulted(uint256 run, Run storage r, bytes32 commitment, Submission storage s) private {
        Reports.Case storage case_ = _cases[run][commitment];
        uint256 due = Reports.dueAt(s.submittedAt, r.params.windows);
        if (case_.isUndecided(due, r.params.windows.confirm)) _void(run, r, commitment, s, UNDECIDED);
        else if (case_.executableAt != 0 && block.timestamp >= case_.executableAt) _slash(run, r, commitment, s);
    }
}
