// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title Stake of providers, and the node keys that may work on their behalf
/// @notice A provider (cold key) stakes tokens, authorises node keys (hot) and allocates stake to (run, node).
/// Only what is allocated to (run, node) can be lost there; what leaves an allocation stays slashable until
/// its unbonding ends.
interface IStaking {
    /// @notice `provider` added `amount` to its free stake.
    event Staked(address indexed provider, uint256 amount);
    /// @notice `amount` left (`run`, `node`), or the free stake where both are zero, and can be withdrawn from `readyAt`.
    event Unstaked(address indexed provider, uint256 indexed run, address indexed node, uint256 amount, uint40 readyAt);
    event Withdrawn(address indexed provider, uint256 amount);
    event NodeAuthorized(address indexed provider, address indexed node, uint256 nonce);
    event NodeRevoked(address indexed provider, address indexed node);
    /// @notice `amount` of free stake now backs `node` in `run`.
    event Allocated(address indexed provider, uint256 indexed run, address indexed node, uint256 amount);
    /// @notice `amount` of what backed `node` in `run` was burnt.
    event Slashed(address indexed provider, uint256 indexed run, address indexed node, uint256 amount);
    event CoordinatorSet(address coordinator);

    error ZeroAddress();
    error ZeroAmount();
    error NotCoordinator(address caller);
    error CoordinatorAlreadySet(address coordinator);
    error InsufficientStake(uint256 wanted, uint256 available);
    error NodeTaken(address node, address provider);
    error NotProvider(address caller, address node);
    error InvalidSignature(address recovered, address expected);
    error DeadlinePassed(uint256 deadline, uint256 time);
    error TooManyUnbondings(uint256 limit);
    error NothingToWithdraw(address provider);
    error NotDeployer(address caller);

    /// @notice The ERC-20 that is staked.
    function token() external view returns (address);
    /// @notice Seconds between unstaking and withdrawing.
    function unbonding() external view returns (uint256);
    function coordinator() external view returns (address);
    /// @notice Stake of `provider` that is allocated to nothing.
    function free(address provider) external view returns (uint256);
    /// @notice Stake that backs `node` in `run`, and how much of it open submissions lock.
    function allocation(uint256 run, address node) external view returns (uint256 amount, uint256 locked);
    /// @notice Block of the first allocation ever to (`run`, `node`), 0 if there was none.
    function firstAllocation(uint256 run, address node) external view returns (uint64 blockNumber);
    /// @notice The provider that `node` works for, zero if none.
    function providerOf(address node) external view returns (address);
    /// @notice The provider that `node` was ever bound to, revoked or not: it owns what `node` earned and answers for it.
    function boundTo(address node) external view returns (address);
    /// @notice The nonce that the next `NodeAuthorization` of `node` must carry.
    function nonces(address node) external view returns (uint256);
    /// @notice Sum of what `provider` has unbonding, and how much of it can be withdrawn now.
    function unbondingOf(address provider) external view returns (uint256 pending, uint256 ready);

    /// @notice Sets, once, the only contract that may lock and slash. Deployer only.
    function setCoordinator(address coordinator) external;
    function stake(uint256 amount) external;
    /// @notice Starts unbonding `amount` from (`run`, `node`), or from the free stake where both are zero.
    function unstake(uint256 run, address node, uint256 amount) external;
    /// @notice Pays out all of the caller's matured unbondings.
    function withdraw() external returns (uint256 amount);
    /// @notice Binds `node` to the caller; `signature` is the node's EIP-712 `NodeAuthorization(provider,node,nonce,deadline)`.
    function authorizeNode(address node, uint256 deadline, bytes calldata signature) external;
    /// @notice From now `node` can submit nothing. It stays bound to the caller: what it has open is still paid to, or
    /// slashed from, the caller, and no other provider can ever authorise it.
    function revokeNode(address node) external;
    function allocate(uint256 run, address node, uint256 amount) external;

    /// @notice Locks `amount` of (`run`, `node`)'s allocation, or reverts `InsufficientStake`. Coordinator only.
    function lock(uint256 run, address node, uint256 amount) external;
    /// @notice Frees `amount` of the lock. Coordinator only.
    function unlock(uint256 run, address node, uint256 amount) external;
    /// @notice Burns up to `amount` of what backs `node` in `run`, its unbonding stake included. Coordinator only.
    function slash(uint256 run, address node, uint256 amount) external returns (uint256 slashed);
}
