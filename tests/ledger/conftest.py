"""Chains that ledger tests run on: one in memory per test, one anvil for all of them, and one of a test's own."""

from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import pytest_asyncio
from eth_account.signers.local import LocalAccount

from ledger.deploy import deploy
from ledger.deployment import Deployment
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.following import Patience
from ledger.memory import MemoryChain, MemoryLedger
from tests.ledger.evm_scene import EvmScene, evm_scene

UNBONDING_SECONDS = 7 * 86400


class MemoryWorld:
    """A chain in memory that a test may move on in time."""

    def __init__(self) -> None:
        self.chain = MemoryChain(unbonding=UNBONDING_SECONDS)

    async def ledger_for(self, account: LocalAccount, coins: int = 10**18) -> MemoryLedger:
        self.chain.give_native(account.address, coins)
        return MemoryLedger(self.chain, account)

    async def advance(self, seconds: int) -> None:
        self.chain.mine(seconds)

    async def close(self) -> None:
        """Nothing is held open."""


class EvmWorld:
    """The session's anvil with the contracts on it; tests share it, so each works with keys and runs of its own."""

    def __init__(self, anvil: Anvil, deployment: Deployment) -> None:
        self.anvil = anvil
        self.deployment = deployment
        self._ledgers: list[EvmLedger] = []

    async def ledger_for(self, account: LocalAccount, coins: int = 10**18) -> EvmLedger:
        await self.anvil.fund(account.address, coins)
        ledger = await EvmLedger.connect([self.anvil.rpc_url], self.deployment, account, None, Patience(poll=0.01))
        self._ledgers.append(ledger)
        return ledger

    async def advance(self, seconds: int) -> None:
        await self.anvil.advance(seconds)

    async def close(self) -> None:
        for ledger in self._ledgers:
            await ledger.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def anvil() -> AsyncIterator[Anvil]:
    """A chain that mines a block per transaction and none otherwise."""
    async with Anvil(block_time=None) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployment(anvil: Anvil) -> Deployment:
    return await deploy(anvil.rpc_url, anvil.accounts[0], UNBONDING_SECONDS)


@pytest.fixture(params=["memory", "evm"])
def new_world(request: pytest.FixtureRequest) -> Callable[[], MemoryWorld | EvmWorld]:
    """What makes a world. anvil is asked for here, where no loop runs yet: it has the session's."""
    if request.param == "memory":
        return MemoryWorld
    return partial(EvmWorld, *(request.getfixturevalue(name) for name in ("anvil", "deployment")))


@pytest.fixture
async def world(new_world: Callable[[], MemoryWorld | EvmWorld]) -> AsyncIterator[MemoryWorld | EvmWorld]:
    made = new_world()
    yield made
    await made.close()


@pytest.fixture
async def scene() -> AsyncIterator[EvmScene]:
    """On an anvil of the test's own, which mines a block per transaction."""
    async with Anvil(block_time=None) as anvil:
        yield await evm_scene(anvil)
