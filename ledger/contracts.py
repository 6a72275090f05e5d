"""The three contracts of a deployment as its endpoints answer for them: whether they are the right ones, and views."""

from typing import Any, Final

from eth_utils.address import to_checksum_address
from web3.contract import AsyncContract

from ledger.base import Address
from ledger.deployment import Deployment
from ledger.endpoints import Endpoints, Web3
from ledger.errors import NotDeployed, Reverted
from ledger.interfaces import interface
from ledger.signing import Call
from ledger.translation import BadAnswer, encoding

WHAT_TO_DO: Final = "Use the run's own deployment file, its chain, and the release that it was made with"


class Contract:
    """One contract at its address."""

    def __init__(self, endpoints: Endpoints, name: str, address: Address) -> None:
        self._endpoints = endpoints
        self._interface = interface(name)
        self._bound: dict[Web3, AsyncContract] = {}  # one takes milliseconds to make
        self.address = address

    async def view(self, function: str, *arguments: object) -> Any:
        """What a view returns, now: its result, or a list of several.

        Raises: Reverted `UnknownRun`, or `OutOfRange` for an argument. Unreachable: an endpoint says that it reverted
        otherwise, which no view of these contracts does.
        """

        async def question(w3: Web3) -> Any:
            with encoding(function):
                call = self._at(w3).functions[function](*arguments)
            try:
                return await call.call()
            except Reverted as lie:
                if lie.name == "UnknownRun":
                    raise
                raise BadAnswer(f"{function}() is said to have reverted, which it never does: {lie}") from lie

        return await self._endpoints.insist(lambda: self._endpoints.ask(question))

    def call(self, function: str, *arguments: object) -> Call:
        """The transaction that calls `function`."""
        return Call(function, self.address, self._interface.call(function, *arguments))

    async def require_code(self) -> None:
        """Raises: NotDeployed unless this very contract stands at the address."""
        code = await self._endpoints.ask(lambda w3: w3.eth.get_code(to_checksum_address(self.address)))
        name = self._interface.name
        if not code:
            raise NotDeployed(f"no contract stands at {self.address}, where the deployment has {name}. {WHAT_TO_DO}")
        if not self._interface.is_runtime(code):
            raise NotDeployed(f"the contract at {self.address} is not the {name} of this version. {WHAT_TO_DO}")

    def _at(self, w3: Web3) -> AsyncContract:
        if w3 not in self._bound:
            self._bound[w3] = w3.eth.contract(to_checksum_address(self.address), abi=self._interface.contract.abi)
        return self._bound[w3]


class Contracts:
    """Token, staking and coordinator of one deployment."""

    def __init__(self, endpoints: Endpoints, deployment: Deployment) -> None:
        self.token = Contract(endpoints, "StakeToken", deployment.token)
        self.staking = Contract(endpoints, "Staking", deployment.staking)
        self.coordinator = Contract(endpoints, "RunCoordinator", deployment.coordinator)

    async def require(self) -> None:
        """Raises: NotDeployed unless all three are there and belong together."""
        for contract in (self.token, self.staking, self.coordinator):
            await contract.require_code()
        bonds = (
            (self.coordinator, "staking", self.staking.address),
            (self.staking, "coordinator", self.coordinator.address),
            (self.staking, "token", self.token.address),
        )
        for contract, function, expected in bonds:
            found = await contract.view(function)
            if found != expected:
                raise NotDeployed(
                    f"{function}() of {contract.address} is {found}, the deployment has {expected}: its addresses are "
                    f"of two deployments. {WHAT_TO_DO}"
                )
