"""The state that all in-memory ledgers of one network share: a chain and the contracts on it."""

from collections import defaultdict
from typing import Final

from eth_utils.address import to_checksum_address

from ledger.base import Address, Block
from ledger.errors import reverted
from ledger.memory.blocks import Blocks, Call
from ledger.memory.rules import Runs
from ledger.memory.staking import Staking, Token
from ledger.memory.submissions import Submissions

ANVIL_CHAIN_ID: Final = 31337  # of a devnet, so that nothing signed here counts anywhere else
START: Final = 1_700_000_000  # seconds; any time in the past, the same in every test
UNBONDING_SECONDS: Final = 7 * 24 * 3600
FAUCET_CAP: Final = 10**30  # base units of one faucet call

STAKING: Final = Address(to_checksum_address("0x" + "57a4" * 10))
COORDINATOR: Final = Address(to_checksum_address("0x" + "c00d" * 10))


class MemoryChain:
    """A chain with the contracts deployed in its block 0.

    Args:
        automine: each write ends a block, one second after the one before it. Otherwise writes wait until `mine`.
        confirmations: blocks after which a beacon counts.
        unbonding: seconds between unstaking and withdrawing.
        faucet_cap, faucet_cooldown: base units of one faucet call, seconds between two.
    """

    def __init__(
        self,
        *,
        chain_id: int = ANVIL_CHAIN_ID,
        start: int = START,
        automine: bool = True,
        confirmations: int = 0,
        unbonding: int = UNBONDING_SECONDS,
        faucet_cap: int = FAUCET_CAP,
        faucet_cooldown: int = 0,
    ) -> None:
        self.chain_id = chain_id
        self.confirmations = confirmations
        self.blocks = Blocks(chain_id, start, automine)
        self.native: defaultdict[Address, int] = defaultdict(int)  # wei
        self.token = Token(faucet_cap, faucet_cooldown)
        self.staking = Staking(self.token, STAKING, chain_id, unbonding)
        self.runs = Runs(self.token, self.staking, COORDINATOR)
        self.submissions = Submissions(self.token, self.staking, self.runs, chain_id)

    @property
    def head(self) -> Block:
        return self.blocks.head

    def mine(self, seconds: int = 1) -> Block:
        """Ends a block, so that the head is `seconds` later than before; returns the head."""
        return self.blocks.mine(seconds)

    def give_native(self, who: Address, amount: int) -> None:
        """Makes `amount` wei out of nothing, as a devnet's genesis does."""
        self.native[who] += amount

    def transfer_native(self, call: Call, to: Address, amount: int) -> None:
        balance = self.native[call.sender]
        if amount > balance:
            operands = {"account": call.sender, "balance": balance, "needed": amount}
            raise reverted("InsufficientNativeBalance", operands)
        self.native[call.sender] -= amount
        self.native[to] += amount
