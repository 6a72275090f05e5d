"""Getting a node key ready to work in a run: authorised by its provider, backed by stake, able to pay gas.

Every step looks first at what the chain holds, so that registering again does only what is missing.
"""

from dataclasses import dataclass

from eth_account.signers.local import LocalAccount

from ledger.base import Address, Ledger, Run, RunParams, amount_text
from ledger.errors import Reverted
from ledger.messages import Domain, NodeAuthorization
from ledger.messages import sign as sign_message
from node.errors import ConfigError
from node.log import event
from node.roles.gas import GAS_ASKED_FOR, GAS_FLOOR_WEI, GAS_TOP_UP_WEI, paying_gas

AUTHORIZATION_SECONDS = 3600


def stake_per_node(params: RunParams) -> int:
    """Base units that must back a node so that it can have `max_open` submissions open."""
    return params.max_open * (params.penalty + params.submission_bond)


@dataclass(frozen=True, slots=True)
class Registration:
    """`node_key` signs its own authorisation; `provider` pays for everything."""

    provider: Ledger
    node_key: LocalAccount
    run: Run

    @property
    def node(self) -> Address:
        return Address(self.node_key.address)

    async def ensure(self) -> None:
        """Leaves the node authorised, backed and with gas.

        Raises:
            ConfigError: tokens or gas are missing and cannot be had; the node works for another provider.
            LedgerError: the chain did not take a step.
        """
        await self.fuel()
        with paying_gas(self.provider.account):
            await self._authorize()
            await self._back()

    async def fuel(self) -> None:
        """The beginning of `ensure`: gas, since everything after it needs some. What a killed process sent comes
        before, since doing it again would give gas and stake twice. Raises: as `ensure`."""
        with paying_gas(self.provider.account):
            await self.provider.finish_earlier()
            await self._fuel()

    async def _authorize(self) -> None:
        provider = await self.provider.provider_of(self.node)
        if provider == self.provider.account:
            return
        if provider is not None:
            raise ConfigError(f"node key {self.node} already works for {provider}: use another wallet")
        nonce = await self.provider.node_nonce(self.node)
        deadline = (await self.provider.head()).time + AUTHORIZATION_SECONDS
        domain = Domain(self.provider.chain_id, self.provider.staking)
        message = NodeAuthorization(self.provider.account, self.node, nonce, deadline)
        await self.provider.authorize_node(self.node, deadline, sign_message(self.node_key, domain, message))
        event("node authorised", node=self.node, provider=self.provider.account)

    async def _back(self) -> None:
        held = await self.provider.allocation(self.run.id, self.node)
        missing = stake_per_node(self.run.params) - held.amount
        if missing <= 0:
            return
        free = await self.provider.free_stake(self.provider.account)
        if free < missing:
            await self._tokens(missing - free)
            await self.provider.stake(missing - free)
        await self.provider.allocate(self.run.id, self.node, missing)
        event("stake allocated", node=self.node, amount=missing, total_amount=stake_per_node(self.run.params))

    async def _tokens(self, amount: int) -> None:
        """Sees to it that the provider has `amount` tokens, from the test network's faucet if need be."""
        have = await self.provider.token_balance(self.provider.account)
        if have >= amount:
            return
        try:
            await self.provider.faucet(amount - have)
        except Reverted as error:
            raise ConfigError(
                f"staking needs {amount_text(amount)}, {self.provider.account} has {amount_text(have)}, and the faucet "
                f"gives none ({error}). Try `intellect-node faucet --wallet ...` later, or send tokens to that address."
            ) from error
        event("test tokens taken from the faucet", amount=amount - have)

    async def _fuel(self) -> None:
        if await self.provider.native_balance(self.node) >= GAS_FLOOR_WEI:
            return
        if await self.provider.native_balance(self.provider.account) < 2 * GAS_TOP_UP_WEI:
            raise ConfigError(f"{self.provider.account} cannot pay gas for its node: {GAS_ASKED_FOR}")
        await self.provider.transfer_native(self.node, GAS_TOP_UP_WEI)
        event("node given gas", node=self.node, gas=GAS_TOP_UP_WEI)
