"""What a contract's revert data says: its custom error by name, with its operands by name."""

from functools import cache
from typing import Any, Final

from eth_typing import HexStr
from eth_utils.abi import abi_to_signature
from web3.contract import AsyncContract
from web3.providers.async_base import AsyncBaseProvider

from ledger.base import Digest
from ledger.errors import Reverted, reverted
from ledger.interfaces import entries, web3_over
from ledger.translation import BadAnswer, reading

MAX_REASON: Final = 200  # characters kept of a reason string

# Solidity, "Panic via assert and Error via require".
_BUILT_IN: Final = (
    {"name": "Error", "inputs": [{"name": "message", "type": "string"}]},
    {"name": "Panic", "inputs": [{"name": "code", "type": "uint256"}]},
)


def decode_revert(data: bytes) -> Reverted:
    """The exception for revert data `data`, which may be anything: what cannot be read is named by its selector."""
    if not data:
        return reverted("NoReason")
    try:
        with reading():
            error, values = _errors().decode_function_input(HexStr("0x" + data.hex()))
        return reverted(error.fn_name, {name: _value(value) for name, value in values.items()})
    except BadAnswer:
        return reverted("UnknownError", {"selector": "0x" + data[:4].hex()})


@cache
def _errors() -> type[AsyncContract]:
    """Every error as a function: web3 decodes the input of functions by selector, and revert data has the same form."""
    functions: list[Any] = [{**error, "type": "function", "outputs": []} for error in (*_BUILT_IN, *entries("error"))]
    functions = list({abi_to_signature(function): function for function in functions}.values())
    return web3_over(AsyncBaseProvider()).eth.contract(abi=functions)


def _value(value: object) -> object:
    if isinstance(value, str):
        return value[:MAX_REASON]
    return Digest(value) if isinstance(value, bytes) and len(value) == 32 else value
