"""What to offer for gas (EIP-1559): enough for the next blocks, more when stuck, never a fortune."""

from dataclasses import dataclass
from typing import Final

from ledger.blocks import read_latest
from ledger.endpoints import Endpoints, Web3
from ledger.provider import Refused

GWEI: Final = 10**9
DEFAULT_PRIORITY_FEE: Final = GWEI // 1000  # where an endpoint suggests none; Base takes 0.001 gwei
MAX_FEE: Final = 1_000 * GWEI  # per gas; an endpoint that asks for more is lying or the chain is unusable
BASE_FEE_ROOM: Final = 2  # six full blocks in a row double the base fee (EIP-1559, 12.5% a block)
GAS_MARGIN: Final = 2  # state may change before the block: a settle makes the next `submit` cost 1.6 times as much
MAX_GAS: Final = 16_777_216  # EIP-7825, limit of one transaction


@dataclass(frozen=True, slots=True)
class Fees:
    """Wei per gas."""

    most: int
    priority: int


async def suggested_fees(endpoints: Endpoints) -> Fees:
    """Fees that fit the latest block. Raises: Unreachable."""

    async def question(w3: Web3) -> Fees:
        try:
            priority = min(await w3.eth.max_priority_fee, MAX_FEE)
        except Refused:
            priority = DEFAULT_PRIORITY_FEE
        base_fee = (await read_latest(w3)).base_fee
        return Fees(min(BASE_FEE_ROOM * base_fee + priority, MAX_FEE), priority)

    return await endpoints.ask(question)


def replacement_fees(before: Fees, now: Fees) -> Fees | None:
    """Fees that replace a pending transaction: at least an eighth more of both (geth, txpool price bump 10%); None
    when that would pass the limit."""
    fees = Fees(max(now.most, before.most * 9 // 8 + 1), max(now.priority, before.priority * 9 // 8 + 1))
    return fees if fees.most <= MAX_FEE else None


def gas_limit(estimate: int) -> int:
    """What a transaction may use at most, for what it would use now."""
    return min(estimate * GAS_MARGIN, MAX_GAS)
