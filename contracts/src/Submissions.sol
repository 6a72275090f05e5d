// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {IRunCoordinator} from "./interfaces/IRunCoordinator.sol";
import {IStaking} from "./interfaces/IStaking.sol";
import {Commitments} from "./libraries/Commitments.sol";
import {Messages} from "./libraries/Messages.sol";
import {Reports} from "./libraries/Reports.sol";
import {Runs} from "./Runs.sol";

/// @title Submissions that nobody faults: committed, settled by a quorum, paid; and what each end does to pot and stake
abstract contract Submissions is Runs, EIP712 {
    using SafeERC20 for IERC20;

    uint256 private constant MAX_BATCH = 64;
    uint8 internal constant UNDECIDED = 255; // in place of a check, where a report found no quorum

    struct Submission {
        address node;
        uint40 submittedAt;
        uint40 units;
        State state;
    }

    struct Progress {
        uint64 version; // the latest that the node has committed in
        uint16 open;
    }

    mapping(uint256 run => mapping(bytes32 commitment => Submission)) public submission;
    mapping(uint256 run => mapping(uint64 version => mapping(address node => uint64))) public slots;
    mapping(address provider => uint256) public rewards;
    mapping(uint256 run => mapping(address node => Progress)) private _progress;

    constructor() EIP712(Messages.DOMAIN_NAME, Messages.DOMAIN_VERSION) {}

    /// @inheritdoc IRunCoordinator
    function submit(uint256 run, uint64 version, uint64 expectedSlot, bytes32 root, uint40 units, bytes32 beacon)
        external
        returns (bytes32 commitment)
    {
        Run storage r = _run(run);
        Commitments.Slot memory slot = Commitments.Slot(run, msg.sender, version, expectedSlot, beacon);
        commitment = Commitments.commitment(block.chainid, address(this), slot, root, units);
        _requireSubmittable(r, slot, commitment);
        if (units == 0 || units > r.params.maxUnits) revert InvalidUnits(units, r.params.maxUnits);
        uint256 pay = units * uint256(r.params.pricePerUnit);
        if (pay > r.pot) revert PotTooSmall(pay, r.pot);

        _open(r, slot, pay);
        submission[run][commitment] = Submission(msg.sender, uint40(block.timestamp), units, State.Submitted);

        emit Submitted(run, commitment, msg.sender, version, expectedSlot, root, units, beacon);
        IStaking(staking).lock(run, msg.sender, _bonds(r));
    }

    /// @inheritdoc IRunCoordinator
    function settle(uint256 run, bytes32[] calldata commitments, bytes[] calldata signatures) external {
        Run storage r = _run(run);
        _requireBatch(commitments.length);
        _requireQuorum(run, r, Messages.batch(run, commitments), signatures);

        for (uint256 i = 0; i < commitments.length; ++i) {
            Submission storage s = submission[run][commitments[i]];
            if (s.state != State.Submitted || _isExpired(r, s)) continue;
            if (block.timestamp >= Reports.dueAt(s.submittedAt, r.params.windows)) _settle(run, r, commitments[i], s);
        }
    }

    /// @inheritdoc IRunCoordinator
    function claim() external returns (uint256 amount) {
        amount = rewards[msg.sender];
        if (amount == 0) revert NothingToClaim(msg.sender);

        rewards[msg.sender] = 0;

        emit Claimed(msg.sender, amount);
        _token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IRunCoordinator
    function openOf(uint256 run, address node) external view returns (uint256) {
        return _progress[run][node].open;
    }

    // --- Guards

    function _requireSubmittable(Run storage r, Commitments.Slot memory s, bytes32 commitment) private view {
        if (IStaking(staking).providerOf(s.node) == address(0)) revert NodeNotAuthorized(s.node);
        if (_isClosed(r)) revert RunIsEnded(s.run);
        _requireOpenVersion(s.run, r, s.version);
        if (submission[s.run][commitment].state != State.None) revert AlreadySubmitted(commitment);
        uint64 slot = slots[s.run][s.version][s.node];
        if (s.slot != slot) revert SlotMismatch(s.slot, slot);
        Progress memory progress = _progress[s.run][s.node];
        if (s.version < progress.version) revert VersionBehind(s.version, progress.version);
        if (progress.open >= r.params.maxOpen) revert TooManyOpen(progress.open, r.params.maxOpen);
    }

    function _requireBatch(uint256 size) internal pure {
        if (size == 0 || size > MAX_BATCH) revert BatchSize(size);
    }

    /// @dev Ascending signers that are validators are distinct ones.
    function _requireQuorum(uint256 run, Run storage r, bytes32 structHash, bytes[] calldata signatures) private view {
        if (signatures.length < r.params.quorum) revert QuorumNotReached(signatures.length, r.params.quorum);
        bytes32 digest = _hashTypedDataV4(structHash);
        address previous = address(0);
        for (uint256 i = 0; i < signatures.length; ++i) {
            previous = _nextSigner(run, previous, digest, signatures[i]);
        }
    }

    function _nextSigner(uint256 run, address previous, bytes32 digest, bytes calldata signature)
        internal
        view
        returns (address signer)
    {
        signer = _recover(digest, signature);
        if (signer <= previous) revert SignersNotAscending(previous, signer);
        _validatorIndex(run, signer);
    }

    function _recover(bytes32 digest, bytes calldata signature) internal pure returns (address signer) {
        ECDSA.RecoverError problem;
        (signer, problem,) = ECDSA.tryRecoverCalldata(digest, signature);
        if (problem != ECDSA.RecoverError.NoError) revert InvalidSignature();
    }

    /// @dev Past its time a submission can only expire, whether or not somebody has said so yet.
    function _isExpired(Run storage r, Submission storage s) internal view returns (bool) {
        return block.timestamp > uint256(s.submittedAt) + r.params.windows.settleBy;
    }

    // --- Effects: how a submission opens, and its four ends

    function _open(Run storage r, Commitments.Slot memory s, uint256 pay) private {
        r.pot -= uint128(pay);
        r.reserved += uint128(pay);
        ++r.open;
        ++slots[s.run][s.version][s.node];
        Progress storage progress = _progress[s.run][s.node];
        progress.version = s.version;
        ++progress.open;
    }

    function _close(uint256 run, Run storage r, Submission storage s, State end) private returns (uint256 pay) {
        pay = s.units * uint256(r.params.pricePerUnit);
        s.state = end;
        r.reserved -= uint128(pay);
        if (end != State.Settled) r.pot += uint128(pay);
        --r.open;
        --_progress[run][s.node].open;
    }

    function _settle(uint256 run, Run storage r, bytes32 commitment, Submission storage s) private {
        uint256 pay = _close(run, r, s, State.Settled);
        address provider = IStaking(staking).boundTo(s.node);
        rewards[provider] += pay;

        emit Settled(run, commitment, provider, pay);
        IStaking(staking).unlock(run, s.node, _bonds(r));
    }

    function _expire(uint256 run, Run storage r, bytes32 commitment, Submission storage s) internal {
        _close(run, r, s, State.Expired);

        emit Expired(run, commitment);
        IStaking(staking).unlock(run, s.node, _bonds(r));
    }

    function _void(uint256 run, Run storage r, bytes32 commitment, Submission storage s, uint8 check) internal {
        uint256 bond = check == UNDECIDED ? 0 : r.params.submissionBond;
        _close(run, r, s, State.Voided);

        emit Voided(run, commitment, check, bond);
        IStaking(staking).unlock(run, s.node, _bonds(r));
        if (bond != 0) IStaking(staking).slash(run, s.node, bond);
    }

    function _slash(uint256 run, Run storage r, bytes32 commitment, Submission storage s) internal {
        _close(run, r, s, State.Slashed);

        emit SlashExecuted(run, commitment, s.node, r.params.penalty);
        IStaking(staking).unlock(run, s.node, _bonds(r));
        IStaking(staking).slash(run, s.node, r.params.penalty);
    }

    /// @dev What one open submission locks of its node's allocation.
    function _bonds(Run storage r) private view returns (uint256) {
        return uint256(r.params.penalty) + r.params.submissionBond;
    }
}
