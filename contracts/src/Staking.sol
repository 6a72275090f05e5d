// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IStaking} from "./interfaces/IStaking.sol";
import {Messages} from "./libraries/Messages.sol";
import {Unbondings} from "./libraries/Unbondings.sol";

/// @title Stake of providers, and the node keys that may work on their behalf
contract Staking is IStaking, EIP712 {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;
    using Unbondings for Unbondings.Entry[];

    /// @dev `locked` never exceeds `amount`.
    struct Allocation {
        uint128 amount;
        uint128 locked;
    }

    struct Binding {
        address provider; // never changes once set
        bool revoked;
    }

    address public immutable token;
    uint256 public immutable unbonding;
    address private immutable _deployer;

    address public coordinator;
    mapping(address provider => uint256 amount) public free;
    mapping(uint256 run => mapping(address node => uint64 blockNumber)) public firstAllocation;
    mapping(address node => uint256 nonce) public nonces;
    mapping(uint256 run => mapping(address node => Allocation)) private _allocations;
    mapping(address node => Binding) private _bindings;
    mapping(address provider => Unbondings.Entry[]) private _unbondings;

    modifier onlyCoordinator() {
        if (msg.sender != coordinator) revert NotCoordinator(msg.sender);
        _;
    }

    /// @param token_ the ERC-20 that is staked; it can burn (`ERC20Burnable`) and takes no fee on transfers
    /// @param unbonding_ seconds between unstaking and withdrawing; runs need theirs to be shorter
    constructor(address token_, uint256 unbonding_) EIP712(Messages.DOMAIN_NAME, Messages.DOMAIN_VERSION) {
        if (token_ == address(0)) revert ZeroAddress();
        token = token_;
        unbonding = unbonding_;
        _deployer = msg.sender;
    }

    /// @inheritdoc IStaking
    function setCoordinator(address coordinator_) external {
        if (msg.sender != _deployer) revert NotDeployer(msg.sender);
        if (coordinator != address(0)) revert CoordinatorAlreadySet(coordinator);
        if (coordinator_ == address(0)) revert ZeroAddress();

        coordinator = coordinator_;

        emit CoordinatorSet(coordinator_);
    }

    // --- Stake

    /// @inheritdoc IStaking
    function stake(uint256 amount) external {
        if (amount == 0) revert ZeroAmount();

        free[msg.sender] += amount;

        emit Staked(msg.sender, amount);
        IERC20(token).safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IStaking
    function allocate(uint256 run, address node, uint256 amount) external {
        if (providerOf(node) != msg.sender) revert NotProvider(msg.sender, node);
        if (amount == 0) revert ZeroAmount();
        _takeFree(amount);

        _allocations[run][node].amount += amount.toUint128();
        if (firstAllocation[run][node] == 0) firstAllocation[run][node] = uint64(block.number);

        emit Allocated(msg.sender, run, node, amount);
    }

    /// @inheritdoc IStaking
    function unstake(uint256 run, address node, uint256 amount) external {
        if (amount == 0) revert ZeroAmount();
        Unbondings.Entry[] storage entries = _unbondings[msg.sender];
        if (entries.length == Unbondings.LIMIT) revert TooManyUnbondings(Unbondings.LIMIT);
        if (run == 0 && node == address(0)) _takeFree(amount);
        else _takeAllocated(run, node, amount);

        uint40 readyAt = uint40(block.timestamp + unbonding);
        entries.push(Unbondings.Entry({run: run, node: node, readyAt: readyAt, amount: amount}));

        emit Unstaked(msg.sender, run, node, amount, readyAt);
    }

    /// @inheritdoc IStaking
    function withdraw() external returns (uint256 amount) {
        amount = _unbondings[msg.sender].takeReady();
        if (amount == 0) revert NothingToWithdraw(msg.sender);

        emit Withdrawn(msg.sender, amount);
        IERC20(token).safeTransfer(msg.sender, amount);
    }

    // --- Nodes

    /// @inheritdoc IStaking
    function authorizeNode(address node, uint256 deadline, bytes calldata signature) external {
        Binding storage binding = _bindings[node];
        bool isOwnRevoked = binding.revoked && binding.provider == msg.sender;
        if (binding.provider != address(0) && !isOwnRevoked) revert NodeTaken(node, binding.provider);
        if (block.timestamp > deadline) revert DeadlinePassed(deadline, block.timestamp);
        uint256 nonce = nonces[node]++;
        bytes32 digest = _hashTypedDataV4(Messages.nodeAuthorization(msg.sender, node, nonce, deadline));
        (address recovered,,) = ECDSA.tryRecoverCalldata(digest, signature);
        if (recovered != node || node == address(0)) revert InvalidSignature(recovered, node);

        _bindings[node] = Binding({provider: msg.sender, revoked: false});

        emit NodeAuthorized(msg.sender, node, nonce);
    }

    /// @inheritdoc IStaking
    function revokeNode(address node) external {
        if (providerOf(node) != msg.sender) revert NotProvider(msg.sender, node);

        _bindings[node].revoked = true;

        emit NodeRevoked(msg.sender, node);
    }

    // --- The coordinator's

    /// @inheritdoc IStaking
    function lock(uint256 run, address node, uint256 amount) external onlyCoordinator {
        Allocation storage backing = _allocations[run][node];
        uint256 available = backing.amount - backing.locked;
        if (amount > available) revert InsufficientStake(amount, available);

        backing.locked += uint128(amount);
    }

    /// @inheritdoc IStaking
    function unlock(uint256 run, address node, uint256 amount) external onlyCoordinator {
        Allocation storage backing = _allocations[run][node];
        if (amount > backing.locked) revert InsufficientStake(amount, backing.locked);

        backing.locked -= uint128(amount);
    }

    /// @inheritdoc IStaking
    function slash(uint256 run, address node, uint256 amount) external onlyCoordinator returns (uint256 slashed) {
        address provider = boundTo(node);
        Allocation storage backing = _allocations[run][node];
        uint256 available = backing.amount - backing.locked;

        // What is locked answers for other submissions; what unbonds is next in line.
        slashed = amount < available ? amount : available;
        backing.amount -= uint128(slashed);
        if (slashed < amount) slashed += _unbondings[provider].takeUnbonding(run, node, amount - slashed);

        emit Slashed(provider, run, node, slashed);
        ERC20Burnable(token).burn(slashed);
    }

    // --- Views

    /// @inheritdoc IStaking
    function allocation(uint256 run, address node) external view returns (uint256 amount, uint256 locked) {
        Allocation storage backing = _allocations[run][node];
        return (backing.amount, backing.locked);
    }

    /// @inheritdoc IStaking
    function providerOf(address node) public view returns (address) {
        Binding storage binding = _bindings[node];
        return binding.revoked ? address(0) : binding.provider;
    }

    /// @inheritdoc IStaking
    function boundTo(address node) public view returns (address) {
        return _bindings[node].provider;
    }

    /// @inheritdoc IStaking
    function unbondingOf(address provider) external view returns (uint256 pending, uint256 ready) {
        Unbondings.Entry[] storage entries = _unbondings[provider];
        for (uint256 i = 0; i < entries.length; ++i) {
            pending += entries[i].amount;
            if (Unbondings.isReady(entries[i])) ready += entries[i].amount;
        }
    }

    // --- Parts

    function _takeFree(uint256 amount) private {
        uint256 available = free[msg.sender];
        if (amount > available) revert InsufficientStake(amount, available);

        free[msg.sender] = available - amount;
    }

    function _takeAllocated(uint256 run, address node, uint256 amount) private {
        if (boundTo(node) != msg.sender) revert NotProvider(msg.sender, node);
        Allocation storage backing = _allocations[run][node];
        uint256 available = backing.amount - backing.locked;
        if (amount > available) revert InsufficientStake(amount, available);

        backing.amount -= uint128(amount);
    }
}
