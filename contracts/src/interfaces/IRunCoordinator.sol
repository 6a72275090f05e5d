// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Runs, checkpoints, submissions and what becomes of them
/// @notice Amounts are base units of the stake token; times are seconds; windows count from a block's time.
interface IRunCoordinator {
    enum State {
        None,
        Submitted,
        Settled,
        Faulted,
        Voided,
        Expired,
        Slashed
    }

    struct Windows {
        uint32 available; // for a worker to hand its file to the validators
        uint32 audit; // for validators to check it; due = submittedAt + available + audit
        uint32 settleBy; // a submission not settled by then expires
        uint32 confirm; // from a leaf's first Fault, or from when its audit is due if later, to its quorum
        uint32 contest; // from the quorum to the slash
        uint32 panel; // for appeals
        uint32 grace; // a version that left the async window stays open this long
    }

    struct RunParams {
        address trainer;
        address[] validators; // ascending, 1 to 32
        uint8 quorum;
        uint128 pricePerUnit;
        uint128 submissionBond;
        uint128 faultBond;
        uint128 penalty;
        uint40 maxUnits;
        uint16 maxOpen; // submissions of one node that may be open at once
        uint8 asyncLevel;
        uint32 checkpointInterval; // least seconds between two checkpoints
        uint32 trainerDelay; // seconds before a proposed trainer key takes over
        Windows windows;
    }

    struct Fault {
        uint256 run;
        bytes32 commitment;
        uint32 leaf; // 2^32 - 1 means the whole file
        uint8 check;
        bytes32 evidence;
    }

    event RunCreated(
        uint256 indexed run, address indexed owner, bytes32 indexed specDigest, RunParams params, bytes spec
    );
    event RunFunded(uint256 indexed run, address indexed from, uint256 amount);
    event RunEnded(uint256 indexed run);
    event PotWithdrawn(uint256 indexed run, uint256 amount);
    event TrainerProposed(uint256 indexed run, address trainer, uint40 readyAt);
    event TrainerSet(uint256 indexed run, address trainer);
    event RelaySet(uint256 indexed run, address indexed relay, bool approved);
    event EndpointSet(address indexed who, string url);
    event CheckpointPublished(uint256 indexed run, uint64 indexed version, bytes32 manifestRoot);
    event Submitted(
        uint256 indexed run,
        bytes32 indexed commitment,
        address indexed node,
        uint64 version,
        uint64 slot,
        bytes32 root,
        uint40 units,
        bytes32 beacon
    );
    event Settled(uint256 indexed run, bytes32 indexed commitment, address indexed provider, uint256 reward);
    /// @notice `validator` signed that `leaf` fails `check`; `count` validators have said so of this leaf.
    event Reported(
        uint256 indexed run,
        bytes32 indexed commitment,
        address indexed validator,
        uint32 leaf,
        uint8 check,
        bytes32 evidence,
        uint8 count
    );
    /// @notice A quorum agreed: the slash can be executed from `executableAt`.
    event Convicted(uint256 indexed run, bytes32 indexed commitment, uint32 leaf, uint8 check, uint40 executableAt);
    /// @notice Void: no reward. `check` is the quorum's finding (`bond` burnt), or 255 where a report stayed undecided (`bond` 0).
    event Voided(uint256 indexed run, bytes32 indexed commitment, uint8 check, uint256 bond);
    event Expired(uint256 indexed run, bytes32 indexed commitment);
    event SlashExecuted(uint256 indexed run, bytes32 indexed commitment, address indexed node, uint256 amount);
    event Claimed(address indexed provider, uint256 amount);

    error ZeroAddress();
    error UnknownRun(uint256 run);
    error NotOwner(address caller, address owner);
    error NotTrainer(address caller, address trainer);
    error InvalidQuorum(uint256 quorum, uint256 validators);
    error InvalidValidators();
    error InvalidWindows(uint256 settleBy, uint256 least);
    error UnbondingTooShort(uint256 unbonding, uint256 least);
    error InvalidMaxUnits(uint256 maxUnits);
    error VersionMismatch(uint64 expected, uint64 actual);
    error CheckpointTooSoon(uint256 allowedAt);
    error RunIsEnded(uint256 run);
    error RunNotEnded(uint256 run);
    error RunStillOpen(uint256 run, uint256 open);
    error TrainerNotReady(uint256 readyAt);
    error EndpointTooLong(uint256 length);
    error NodeNotAuthorized(address node);
    error SlotMismatch(uint64 expected, uint64 actual);
    error VersionBehind(uint64 version, uint64 current);
    error VersionNotOpen(uint64 version, uint64 latest);
    error InvalidUnits(uint256 units, uint256 maxUnits);
    error TooManyOpen(uint256 open, uint256 maxOpen);
    error PotTooSmall(uint256 wanted, uint256 available);
    error AlreadySubmitted(bytes32 commitment);
    error BatchSize(uint256 size);
    error QuorumNotReached(uint256 signatures, uint256 quorum);
    error SignersNotAscending(address previous, address next);
    error NotValidator(address signer);
    error InvalidSignature();
    error UnknownCheck(uint8 check);
    error WrongRun(uint256 expected, uint256 actual);
    error LengthMismatch(uint256 left, uint256 right);
    error NothingToClaim(address provider);

    // --- Runs
    /// @notice Creates a run, numbered from 1, whose specification is `spec` (canonical JSON); its SHA-256 is the spec digest.
    function createRun(RunParams calldata params, bytes calldata spec) external returns (uint256 run);
    /// @notice Adds `amount` of the caller's tokens to the run's pot.
    function fundRun(uint256 run, uint256 amount) external;
    /// @notice No more checkpoints; no more submissions after `grace`. Owner or trainer.
    function endRun(uint256 run) external;
    /// @notice Pays what is left of an ended run's pot to its owner once `grace` is over and no submission is open.
    function withdrawPot(uint256 run) external returns (uint256 amount);
    /// @notice Names the key that may replace the trainer after `trainerDelay`. Owner only.
    function proposeTrainer(uint256 run, address trainer) external;
    /// @notice Makes the caller, the proposed key, the trainer.
    function acceptTrainer(uint256 run) external;
    function setRelay(uint256 run, address relay, bool approved) external;
    /// @notice Announces where the caller can be reached; the last one counts. At most 256 bytes.
    function setEndpoint(string calldata url) external;
    /// @notice Publishes version 0 (the base weights), then last + 1. Trainer only.
    function publishCheckpoint(uint256 run, uint64 version, bytes32 manifestRoot) external;

    // --- Submissions
    /// @notice Commits the caller (a node key) to one rollout file. Reserves its pay and locks penalty and bond.
    function submit(uint256 run, uint64 version, uint64 expectedSlot, bytes32 root, uint40 units, bytes32 beacon)
        external
        returns (bytes32 commitment);
    /// @notice Pays 1 to 64 submissions on a quorum's `Batch` signatures, signers ascending; skips what is not due or not open.
    function settle(uint256 run, bytes32[] calldata commitments, bytes[] calldata signatures) external;
    /// @notice Counts `Fault`s, `signatures[i]` over `faults[i]`. Checks 8 and 9 freeze and, at quorum, convict;
    /// the others void when a quorum on one (commitment, leaf, check) stands in this one call, signers ascending.
    /// 1 to 64; skips what is final, expired, late or counted already. Check 5 and those over 10 revert.
    function report(uint256 run, Fault[] calldata faults, bytes[] calldata signatures) external;
    /// @notice Does what is due to 1 to 64 submissions, by anyone: expires, voids what stayed undecided (never before its
    /// audit is due), executes slashes. Skips the rest.
    function conclude(uint256 run, bytes32[] calldata commitments) external;
    /// @notice Pays the caller (a provider) all its settled rewards.
    function claim() external returns (uint256 amount);

    // --- Views
    function staking() external view returns (address);
    function runCount() external view returns (uint256);
    function runOwner(uint256 run) external view returns (address);
    function runParams(uint256 run) external view returns (RunParams memory);
    function specDigest(uint256 run) external view returns (bytes32);
    /// @notice `pot` is free for new submissions, `reserved` is promised to open ones; `endedAt` is 0 while the run goes on.
    function runState(uint256 run)
        external
        view
        returns (uint64 checkpoints, uint256 pot, uint256 reserved, uint256 open, uint40 endedAt);
    function checkpoint(uint256 run, uint64 version)
        external
        view
        returns (bytes32 manifestRoot, uint64 blockNumber, uint40 time);
    function isRelay(uint256 run, address relay) external view returns (bool);
    /// @notice The slot that `node` would commit next in `version`.
    function slots(uint256 run, uint64 version, address node) external view returns (uint64);
    function openOf(uint256 run, address node) external view returns (uint256);
    function submission(uint256 run, bytes32 commitment)
        external
        view
        returns (address node, uint40 submittedAt, uint40 units, State state);
    /// @notice Where `leaf` of a frozen submission stands: when first reported, by how many, when its slash may run (0: no quorum).
    function leafReport(uint256 run, bytes32 commitment, uint32 leaf)
        external
        view
        returns (uint40 firstAt, uint8 count, uint40 executableAt);
    function rewards(address provider) external view returns (uint256);
}
