"""The `Ledger` protocol and the values that cross it: what a role may ask of the chain, whatever answers.

Every number is exact: token amounts in base units, times in seconds of block time, never a local clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType, Protocol

Address = NewType("Address", str)  # EIP-55 checksummed, "0x" + 40 hex digits
Digest = NewType("Digest", bytes)  # 32 bytes
RunId = NewType("RunId", int)
Version = NewType("Version", int)

WHOLE_FILE = 2**32 - 1  # the leaf that stands for the whole file in a `Fault`
UNDECIDED = 255  # the check in `Voided` where a report found no quorum
MAX_URL_BYTES = 256  # of an endpoint; protocol, "Contract surface"
TOKEN_UNIT = 10**18  # base units of one stake token: 18 decimals, OpenZeppelin's ERC20
TOKEN_SYMBOL = "tSTAKE"  # contracts/src/StakeToken.sol; another token's code would not be this version's
NOBODY = Address("0x" + "00" * 20)  # what the contracts have where there is no address


def ascending(addresses: Iterable[Address]) -> list[Address]:
    """In the contracts' order of validators and signers: as integers, whatever the case of their letters."""
    return sorted(addresses, key=lambda who: int(who, 16))


def amount_text(base_units: int) -> str:
    """An amount of stake or pay, for people: whole tokens, every digit of it."""
    whole, rest = divmod(base_units, TOKEN_UNIT)
    decimals = f"{rest:0{len(str(TOKEN_UNIT)) - 1}d}".rstrip("0")
    return f"{whole:,}{'.' if decimals else ''}{decimals} {TOKEN_SYMBOL}"


class State(IntEnum):
    """Of a submission, as the contract holds it. Settled, voided, expired and slashed are final."""

    NONE = 0
    SUBMITTED = 1
    SETTLED = 2
    FAULTED = 3
    VOIDED = 4
    EXPIRED = 5
    SLASHED = 6

    @property
    def final(self) -> bool:
        return self in {State.SETTLED, State.VOIDED, State.EXPIRED, State.SLASHED}


@dataclass(frozen=True, slots=True)
class Block:
    number: int
    time: int  # seconds


@dataclass(frozen=True, slots=True)
class Windows:
    """Seconds; see `IRunCoordinator.Windows`."""

    available: int
    audit: int
    settle_by: int
    confirm: int
    contest: int
    panel: int
    grace: int


@dataclass(frozen=True, slots=True)
class RunParams:
    """What the contract holds of a run; see `IRunCoordinator.RunParams`. `validators` ascend."""

    trainer: Address
    validators: tuple[Address, ...]
    quorum: int
    price_per_unit: int
    submission_bond: int
    fault_bond: int
    penalty: int
    max_units: int
    max_open: int
    async_level: int
    checkpoint_interval: int
    trainer_delay: int
    windows: Windows


@dataclass(frozen=True, slots=True)
class Run:
    """A run as created; `spec` is the canonical JSON whose SHA-256 is `spec_digest`."""

    id: RunId
    owner: Address
    params: RunParams
    spec: bytes
    spec_digest: Digest
    created_block: int


@dataclass(frozen=True, slots=True)
class RunState:
    checkpoints: int  # published so far; the latest version is one less
    pot: int
    reserved: int
    open: int
    ended_at: int  # 0 while the run goes on


@dataclass(frozen=True, slots=True)
class SubmissionState:
    node: Address
    submitted_at: int
    units: int
    state: State


@dataclass(frozen=True, slots=True)
class Allocation:
    amount: int
    locked: int
    first_block: int  # 0: never allocated


@dataclass(frozen=True, slots=True)
class Unbonding:
    """Of one provider: `pending` includes `ready`, which can be withdrawn now."""

    pending: int
    ready: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A validator's finding about one leaf, as EIP-712 `Fault` signs it."""

    run: RunId
    commitment: Digest
    leaf: int
    check: int
    evidence: Digest


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of a mined transaction whose status was read and is success."""

    transaction: Digest
    block: Block
    gas_used: int


# --- Events. `block` is where it happened; each is one contract event by the same name.


@dataclass(frozen=True, slots=True)
class CheckpointPublished:
    block: Block
    run: RunId
    version: Version
    manifest_root: Digest


@dataclass(frozen=True, slots=True)
class Submitted:
    block: Block
    run: RunId
    commitment: Digest
    node: Address
    version: Version
    slot: int
    root: Digest
    units: int
    beacon: Digest


@dataclass(frozen=True, slots=True)
class Settled:
    block: Block
    run: RunId
    commitment: Digest
    provider: Address
    reward: int


@dataclass(frozen=True, slots=True)
class Reported:
    block: Block
    run: RunId
    commitment: Digest
    validator: Address
    leaf: int
    check: int
    evidence: Digest
    count: int


@dataclass(frozen=True, slots=True)
class Convicted:
    block: Block
    run: RunId
    commitment: Digest
    leaf: int
    check: int
    executable_at: int


@dataclass(frozen=True, slots=True)
class Voided:
    block: Block
    run: RunId
    commitment: Digest
    check: int
    bond: int


@dataclass(frozen=True, slots=True)
class Expired:
    block: Block
    run: RunId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class SlashExecuted:
    block: Block
    run: RunId
    commitment: Digest
    node: Address
    amount: int
    transaction: Digest


@dataclass(frozen=True, slots=True)
class RelaySet:
    block: Block
    run: RunId
    relay: Address
    approved: bool


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """Not of one run; `url` is hostile until vetted."""

    block: Block
    who: Address
    url: str


@dataclass(frozen=True, slots=True)
class Allocated:
    block: Block
    run: RunId
    provider: Address
    node: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """Not of one run."""

    block: Block
    provider: Address
    amount: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    block: Block
    run: RunId


Event = (
    CheckpointPublished
    | Submitted
    | Settled
    | Reported
    | Convicted
    | Voided
    | Expired
    | SlashExecuted
    | RelaySet
    | EndpointSet
    | Allocated
    | Claimed
    | RunEnded
)


class Ledger(Protocol):
    """The chain as one account sees it.

    Reads raise `Unreachable`. Writes are simulated first, journalled, sent, mined and their status read; they raise
    `Reverted` (a named subclass where callers react), `Unreachable` or `Unconfirmed`.
    """

    @property
    def chain_id(self) -> int: ...
    @property
    def coordinator(self) -> Address: ...
    @property
    def staking(self) -> Address: ...
    @property
    def account(self) -> Address:
        """The address that writes are sent from."""

    @property
    def origin_block(self) -> int:
        """The block that the contracts were deployed in: no event is older."""

    @property
    def confirmations(self) -> int:
        """Blocks to wait for before a block counts."""

    async def finish_earlier(self) -> int:
        """Waits until nothing that an earlier process of this account sent is on its way. The block by which all of it
        counts: whatever was read up to that knows of it.

        Raises:
            Unconfirmed: something is still not final.
            Unreachable: no endpoint says which block that is.
        """

    # --- Chain
    async def head(self) -> Block:
        """The latest block."""

    async def block_at(self, time: int) -> Block | None:
        """The first block whose timestamp is at least `time`, or None while there is none."""

    async def beacon(self, block_number: int) -> Digest | None:
        """The chain's beacon of that block (protocol, "Beacons"), or None until it is known and confirmed."""

    async def native_balance(self, who: Address) -> int: ...
    async def token_balance(self, who: Address) -> int: ...

    # --- Runs
    async def run(self, run: RunId) -> Run:
        """Raises: Reverted `UnknownRun`."""

    async def run_count(self) -> int: ...
    async def run_state(self, run: RunId) -> RunState: ...
    async def slot(self, run: RunId, version: Version, node: Address) -> int:
        """The slot that `node` would commit next in `version`."""

    async def open_of(self, run: RunId, node: Address) -> int: ...
    async def submission(self, run: RunId, commitment: Digest) -> SubmissionState: ...
    async def rewards(self, provider: Address) -> int:
        """Settled and not yet claimed."""

    async def events(self, run: RunId, first_block: int, last_block: int) -> list[Event]:
        """Events of `run`, and those of no run, in those blocks (inclusive), in chain order.

        Raises: Reorganised: the blocks before, which were read last, have been replaced.
        """

    def doubt(self) -> bool:
        """What was answered last cannot be: another endpoint is asked first from now on. Whether there is one that has
        not been doubted as well."""

    # --- Stake
    async def free_stake(self, provider: Address) -> int: ...
    async def allocation(self, run: RunId, node: Address) -> Allocation: ...
    async def provider_of(self, node: Address) -> Address | None: ...
    async def node_nonce(self, node: Address) -> int: ...
    async def unbonding_seconds(self) -> int: ...
    async def unbonding_of(self, provider: Address) -> Unbonding: ...

    # --- Writes
    async def faucet(self, amount: int) -> Receipt:
        """Mints test tokens to the account. Raises: Reverted where the token's faucet refuses."""

    async def transfer_native(self, to: Address, amount: int) -> Receipt: ...
    async def stake(self, amount: int) -> Receipt:
        """Approves what is needed, then stakes."""

    async def unstake(self, run: RunId, node: Address, amount: int) -> Receipt: ...
    async def withdraw(self) -> Receipt: ...
    async def authorize_node(self, node: Address, deadline: int, signature: bytes) -> Receipt: ...
    async def allocate(self, run: RunId, node: Address, amount: int) -> Receipt: ...
    async def create_run(self, params: RunParams, spec: bytes) -> RunId: ...
    async def fund_run(self, run: RunId, amount: int) -> Receipt: ...
    async def set_relay(self, run: RunId, relay: Address, approved: bool) -> Receipt: ...
    async def set_endpoint(self, url: str) -> Receipt: ...
    async def publish_checkpoint(self, run: RunId, version: Version, manifest_root: Digest) -> Receipt: ...
    async def submit(
        self, run: RunId, version: Version, slot: int, root: Digest, units: int, beacon: Digest
    ) -> Receipt: ...
    async def settle(self, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> Receipt: ...
    async def report(self, run: RunId, faults: Sequence[Fault], signatures: Sequence[bytes]) -> Receipt: ...
    async def conclude(self, run: RunId, commitments: Sequence[Digest]) -> Receipt: ...
    async def claim(self) -> Receipt: ...
    async def end_run(self, run: RunId) -> Receipt: ...
    async def withdraw_pot(self, run: RunId) -> Receipt:
        """Raises: Reverted `RunNotEnded` until `grace` after the end, `RunStillOpen`, `NotOwner`."""

    async def close(self) -> None: ...
