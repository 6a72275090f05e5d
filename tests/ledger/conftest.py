"""Chains that ledger tests run on: one in memory per test."""

import pytest
from eth_account.signers.local import LocalAccount

from ledger.memory import MemoryChain, MemoryLedger


class MemoryWorld:
    """A chain in memory that a test may move on in time."""

    def __init__(self) -> None:
        self.chain = MemoryChain()

    async def ledger_for(self, account: LocalAccount, coins: int = 10**18) -> MemoryLedger:
        self.chain.give_native(account.address, coins)
        return MemoryLedger(self.chain, account)

    async def advance(self, seconds: int) -> None:
        self.chain.mine(seconds)


@pytest.fixture(params=["memory"])
async def world(request: pytest.FixtureRequest) -> MemoryWorld:
    return MemoryWorld()
