"""What a contract's revert data says: its custom error by name, with its operands by name."""

from typing import Final

from ledger.base import Digest
from ledger.errors import Reverted, reverted
from ledger.interfaces import decode, errors
from ledger.wire import BadAnswer

REQUIRE: Final = bytes.fromhex("08c379a0")  # Error(string); Solidity, "Panic via assert and Error via require"
PANIC: Final = bytes.fromhex("4e487b71")  # Panic(uint256); same place
MAX_REASON: Final = 200  # characters kept of a reason string


def decode_revert(data: bytes) -> Reverted:
    """The exception for revert data `data`, which may be anything: what cannot be read is named by its selector."""
    selector, operands = data[:4], data[4:]
    try:
        if selector == REQUIRE:
            (reason,) = decode(["string"], operands)
            return reverted("Error", {"message": reason[:MAX_REASON]})
        if selector == PANIC:
            (code,) = decode(["uint256"], operands)
            return reverted("Panic", {"code": code})
        if entry := errors().get(selector):
            values = decode([parameter.type for parameter in entry.inputs], operands)
            named = zip((parameter.name for parameter in entry.inputs), values, strict=True)
            return reverted(entry.name, {name: _value(value) for name, value in named})
    except BadAnswer:
        pass
    return reverted("UnknownError", {"selector": "0x" + selector.hex()}) if selector else reverted("NoReason")


def _value(value: object) -> object:
    return Digest(value) if isinstance(value, bytes) and len(value) == 32 else value
