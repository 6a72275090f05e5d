// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IRunCoordinator} from "./interfaces/IRunCoordinator.sol";
import {IStaking} from "./interfaces/IStaking.sol";

/// @title Runs as their owners and trainers see them: rules, pot, keys and checkpoints
abstract contract Runs is IRunCoordinator {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    uint256 internal constant MAX_VALIDATORS = 32; // one bit each in `Reports.Leaf.voters`
    uint256 internal constant MAX_URL_BYTES = 256;

    struct Run {
        address owner;
        uint40 endedAt; // 0 while the run goes on
        uint48 open;
        address nextTrainer;
        uint40 trainerReadyAt;
        uint64 checkpoints;
        uint128 pot;
        uint128 reserved;
        bytes32 specDigest;
        RunParams params;
    }

    struct Checkpoint {
        bytes32 manifestRoot;
        uint64 blockNumber;
        uint40 time;
    }

    IERC20 internal immutable _token;
    address public immutable staking;

    uint256 public runCount;
    mapping(uint256 run => mapping(uint64 version => Checkpoint)) public checkpoint;
    mapping(uint256 run => mapping(address relay => bool)) public isRelay;
    mapping(uint256 run => Run) private _runs;
    mapping(uint256 run => mapping(address validator => uint256)) private _validatorNumbers; // from 1

    constructor(address staking_) {
        if (staking_ == address(0)) revert ZeroAddress();
        staking = staking_;
        _token = IERC20(IStaking(staking_).token());
    }

    /// @inheritdoc IRunCoordinator
    function createRun(RunParams calldata params, bytes calldata spec) external returns (uint256 run) {
        if (params.trainer == address(0)) revert ZeroAddress();
        if (params.maxUnits == 0) revert InvalidMaxUnits(params.maxUnits);
        _requireWindows(params.windows);
        run = ++runCount;
        _numberValidators(run, params.validators, params.quorum);

        Run storage r = _runs[run];
        r.owner = msg.sender;
        r.specDigest = sha256(spec);
        r.params = params;

        emit RunCreated(run, msg.sender, r.specDigest, params, spec);
    }

    /// @inheritdoc IRunCoordinator
    function fundRun(uint256 run, uint256 amount) external {
        Run storage r = _run(run);
        if (r.endedAt != 0) revert RunIsEnded(run);

        uint256 whole = r.pot + uint256(r.reserved) + amount; // what is reserved may come back to the pot
        r.pot = whole.toUint128() - r.reserved;

        emit RunFunded(run, msg.sender, amount);
        _token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IRunCoordinator
    function endRun(uint256 run) external {
        Run storage r = _run(run);
        if (msg.sender != r.owner && msg.sender != r.params.trainer) revert NotOwner(msg.sender, r.owner);
        if (r.endedAt != 0) revert RunIsEnded(run);

        r.endedAt = uint40(block.timestamp);

        emit RunEnded(run);
    }

    /// @inheritdoc IRunCoordinator
    function withdrawPot(uint256 run) external returns (uint256 amount) {
        Run storage r = _run(run);
        if (msg.sender != r.owner) revert NotOwner(msg.sender, r.owner);
        if (!_isClosed(r)) revert RunNotEnded(run);
        if (r.open != 0) revert RunStillOpen(run, r.open);

        amount = r.pot;
        r.pot = 0;

        emit PotWithdrawn(run, amount);
        _token.safeTransfer(r.owner, amount);
    }

    /// @inheritdoc IRunCoordinator
    function proposeTrainer(uint256 run, address trainer) external {
        Run storage r = _run(run);
        if (msg.sender != r.owner) revert NotOwner(msg.sender, r.owner);
        if (trainer == address(0)) revert ZeroAddress();

        r.nextTrainer = trainer;
        r.trainerReadyAt = uint40(block.timestamp + r.params.trainerDelay);

        emit TrainerProposed(run, trainer, r.trainerReadyAt);
    }

    /// @inheritdoc IRunCoordinator
    function acceptTrainer(uint256 run) external {
        Run storage r = _run(run);
        if (msg.sender != r.nextTrainer) revert NotTrainer(msg.sender, r.nextTrainer);
        if (block.timestamp < r.trainerReadyAt) revert TrainerNotReady(r.trainerReadyAt);

        r.params.trainer = msg.sender;
        r.nextTrainer = address(0);

        emit TrainerSet(run, msg.sender);
    }

    /// @inheritdoc IRunCoordinator
    function setRelay(uint256 run, address relay, bool approved) external {
        Run storage r = _run(run);
        if (msg.sender != r.owner) revert NotOwner(msg.sender, r.owner);
        if (relay == address(0)) revert ZeroAddress();

        isRelay[run][relay] = approved;

        emit RelaySet(run, relay, approved);
    }

    /// @inheritdoc IRunCoordinator
    function setEndpoint(string calldata url) external {
        if (bytes(url).length > MAX_URL_BYTES) revert EndpointTooLong(bytes(url).length);

        emit EndpointSet(msg.sender, url);
    }

    /// @inheritdoc IRunCoordinator
    function publishCheckpoint(uint256 run, uint64 version, bytes32 manifestRoot) external {
        Run storage r = _run(run);
        if (msg.sender != r.params.trainer) revert NotTrainer(msg.sender, r.params.trainer);
        if (r.endedAt != 0) revert RunIsEnded(run);
        if (version != r.checkpoints) revert VersionMismatch(r.checkpoints, version);
        if (version > 0) {
            uint256 allowedAt = uint256(checkpoint[run][version - 1].time) + r.params.checkpointInterval;
            if (block.timestamp < allowedAt) revert CheckpointTooSoon(allowedAt);
        }

        ++r.checkpoints;
        checkpoint[run][version] = Checkpoint(manifestRoot, uint64(block.number), uint40(block.timestamp));

        emit CheckpointPublished(run, version, manifestRoot);
    }

    // --- Views

    /// @inheritdoc IRunCoordinator
    function runOwner(uint256 run) external view returns (address) {
        return _run(run).owner;
    }

    /// @inheritdoc IRunCoordinator
    function runParams(uint256 run) external view returns (RunParams memory) {
        return _run(run).params;
    }

    /// @inheritdoc IRunCoordinator
    function specDigest(uint256 run) external view returns (bytes32) {
        return _run(run).specDigest;
    }

    /// @inheritdoc IRunCoordinator
    function runState(uint256 run)
        external
        view
        returns (uint64 checkpoints, uint256 pot, uint256 reserved, uint256 open, uint40 endedAt)
    {
        Run storage r = _run(run);
        return (r.checkpoints, r.pot, r.reserved, r.open, r.endedAt);
    }

    // --- Parts

    function _run(uint256 run) internal view returns (Run storage r) {
        r = _runs[run];
        if (r.owner == address(0)) revert UnknownRun(run);
    }

    /// @dev Position of `signer` among the run's validators, from 0.
    function _validatorIndex(uint256 run, address signer) internal view returns (uint256) {
        uint256 number = _validatorNumbers[run][signer];
        if (number == 0) revert NotValidator(signer);
        return number - 1;
    }

    /// @dev Whether the run takes no more submissions.
    function _isClosed(Run storage r) internal view returns (bool) {
        return r.endedAt != 0 && block.timestamp > uint256(r.endedAt) + r.params.windows.grace;
    }

    function _requireOpenVersion(uint256 run, Run storage r, uint64 version) internal view {
        if (r.checkpoints == 0 || version >= r.checkpoints) {
            revert VersionNotOpen(version, r.checkpoints == 0 ? 0 : r.checkpoints - 1);
        }
        uint64 latest = r.checkpoints - 1;
        if (latest - version <= r.params.asyncLevel) return;
        uint256 leftAt = checkpoint[run][version + r.params.asyncLevel + 1].time;
        if (block.timestamp > leftAt + r.params.windows.grace) revert VersionNotOpen(version, latest);
    }

    function _requireWindows(Windows calldata windows) private view {
        uint256 settleBy = windows.settleBy;
        uint256 least = uint256(windows.available) + windows.audit + windows.confirm + 1;
        if (settleBy < least) revert InvalidWindows(settleBy, least);
        uint256 unbonding = IStaking(staking).unbonding();
        least = settleBy + windows.confirm + windows.contest + windows.panel + 1;
        if (unbonding < least) revert UnbondingTooShort(unbonding, least);
    }

    function _numberValidators(uint256 run, address[] calldata validators, uint8 quorum) private {
        if (validators.length == 0 || validators.length > MAX_VALIDATORS) revert InvalidValidators();
        if (quorum == 0 || quorum > validators.length) revert InvalidQuorum(quorum, validators.length);
        address previous = address(0);
        for (uint256 i = 0; i < validators.length; ++i) {
            if (validators[i] <= previous) revert InvalidValidators();
            previous = validators[i];
            _validatorNumbers[run][previous] = i + 1;
        }
    }
}
