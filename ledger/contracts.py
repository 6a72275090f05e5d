"""The three contracts of a deployment as an endpoint answers for them: whether they are the right ones, and views."""

from typing import Any

from ledger.base import Address
from ledger.deployment import Deployment
from ledger.errors import NotDeployed, Reverted
from ledger.interfaces import interface
from ledger.rpc import Rpc, call_request
from ledger.signing import Call
from ledger.wire import byte_string


class Contract:
    """One contract at its address."""

    def __init__(self, rpc: Rpc, name: str, address: Address) -> None:
        self._rpc = rpc
        self._interface = interface(name)
        self.address = address

    async def view(self, function: str, *arguments: object) -> tuple[Any, ...]:
        """What a view returns, now. Raises: Reverted, Unreachable."""
        method, parameters = call_request(self.address, self._interface.call(function, *arguments))
        return await self._rpc.ask(
            method, parameters, lambda answer: self._interface.results(function, byte_string(answer))
        )

    async def value(self, function: str, *arguments: object) -> Any:
        """What a view of one result returns."""
        (result,) = await self.view(function, *arguments)
        return result

    def call(self, function: str, *arguments: object) -> Call:
        """The transaction that calls `function`."""
        return Call(function, self.address, self._interface.call(function, *arguments))

    async def require_code(self) -> None:
        """Raises: NotDeployed unless this very contract stands at the address."""
        code = await self._rpc.ask("eth_getCode", [self.address, "latest"], byte_string)
        name = self._interface.name
        if not code:
            raise NotDeployed(f"no contract stands at {self.address}, where the deployment has {name}")
        if not self._interface.is_runtime(code):
            raise NotDeployed(f"the contract at {self.address} is not the {name} of this version")


class Contracts:
    """Token, staking and coordinator of one deployment."""

    def __init__(self, rpc: Rpc, deployment: Deployment) -> None:
        self.token = Contract(rpc, "StakeToken", deployment.token)
        self.staking = Contract(rpc, "Staking", deployment.staking)
        self.coordinator = Contract(rpc, "RunCoordinator", deployment.coordinator)

    async def require(self) -> None:
        """Raises: NotDeployed unless all three are there and belong together."""
        for contract in (self.token, self.staking, self.coordinator):
            await contract.require_code()
        try:
            bonds = (
                (self.coordinator, "staking", self.staking.address),
                (self.staking, "coordinator", self.coordinator.address),
                (self.staking, "token", self.token.address),
            )
            for contract, function, expected in bonds:
                found = await contract.value(function)
                if found != expected:
                    raise NotDeployed(f"{function}() of {contract.address} is {found}, the deployment has {expected}")
        except Reverted as problem:
            raise NotDeployed(f"the deployment's contracts do not answer: {problem}") from problem
