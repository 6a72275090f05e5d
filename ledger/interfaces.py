"""The contracts' ABIs and bytecode, from the generated files in `abi/`, as web3 uses them.

Leaves out any endpoint: what needs none (encoding a call, decoding a log) is done on contracts of no address.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.registry import ABIRegistry, BaseEquals
from eth_abi.registry import registry as eth_abi_registry
from web3 import AsyncWeb3
from web3.contract import AsyncContract
from web3.providers.async_base import AsyncBaseProvider

from ledger.translation import encoding

CONTRACTS: Final = ("StakeToken", "Staking", "RunCoordinator")


def web3_over(provider: AsyncBaseProvider) -> AsyncWeb3[Any]:
    """An `AsyncWeb3` without middleware: nothing here has a name in ENS or leaves gas and fees to web3.

    It reads strings that are not UTF-8: a contract takes any bytes for one, and one such event must not stop whoever
    reads the log.
    """
    w3: AsyncWeb3[Any] = AsyncWeb3(provider, middleware=[])
    w3.codec = ABICodec(_registry())
    return w3


@cache
def _registry() -> ABIRegistry:
    registry: Any = eth_abi_registry
    lenient: ABIRegistry = registry.copy()
    is_string, decoder = cast(Any, BaseEquals)("string"), cast(Any, StringDecoder)("replace")  # eth_abi has no types
    lenient.unregister_decoder("string")
    lenient.register_decoder(is_string, decoder, label="string")
    return lenient


@dataclass(frozen=True, slots=True)
class Interface:
    """One contract. `runtime_sha256` is of its deployed code with zeros in `immutables`, [start, length] in bytes."""

    name: str
    contract: type[AsyncContract]
    immutables: tuple[tuple[int, int], ...]
    runtime_sha256: str

    def call(self, function: str, *arguments: object) -> bytes:
        """The call data of `function`. Raises: Reverted, as the contract would, where an argument is out of range."""
        with encoding(function):
            return bytes.fromhex(self.contract.encode_abi(function, arguments)[2:])

    def creation(self, *arguments: object) -> bytes:
        """The data of the transaction that deploys the contract."""
        return bytes.fromhex(self.contract.constructor(*arguments).data_in_transaction[2:])

    def topic(self, event: str) -> str:
        """What the first topic of an `event`'s logs is."""
        return str(self.contract.events[event].topic)

    def is_runtime(self, code: bytes) -> bool:
        """Whether `code` is this contract's, whatever its constructor filled in."""
        blank = bytearray(code)
        for start, length in self.immutables:
            blank[start : start + length] = bytes(length)
        return len(blank) == len(code) and hashlib.sha256(blank).hexdigest() == self.runtime_sha256


@cache
def interface(name: str) -> Interface:
    """The contract `name`, one of `CONTRACTS`."""
    content = json.loads((files("ledger") / "abi" / f"{name}.json").read_text("utf-8"))
    return Interface(
        name=name,
        contract=web3_over(AsyncBaseProvider()).eth.contract(abi=content["abi"], bytecode=content["bytecode"]),
        immutables=tuple((start, length) for start, length in content["immutable_ranges"]),
        runtime_sha256=content["runtime_sha256"],
    )


def entries(kind: str) -> Iterator[dict[str, Any]]:
    """All ABI entries of `kind` of the contracts."""
    for name in CONTRACTS:
        yield from (dict(entry) for entry in interface(name).contract.abi if entry["type"] == kind)
