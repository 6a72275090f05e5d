"""Values of a JSON-RPC answer, parsed strictly: whatever an endpoint sends, only these types come out."""

import re
from collections.abc import Mapping
from typing import Final

from eth_utils.address import to_checksum_address

from ledger.base import Address, Digest

QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}")  # Ethereum JSON-RPC, "Quantities"; 256 bits
BYTES: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*")  # Ethereum JSON-RPC, "Unformatted data"
MAX_MESSAGE: Final = 300  # characters kept of an endpoint's own words


class BadAnswer(Exception):
    """An endpoint's answer is not what the call returns; never leaves this package."""


def quantity(value: object, bits: int = 256) -> int:
    """An unsigned integer below 2^bits."""
    if not isinstance(value, str) or QUANTITY.fullmatch(value) is None:
        raise BadAnswer(f"not a quantity: {shortened(value)}")
    number = int(value, 16)
    if number >> bits:
        raise BadAnswer(f"a quantity over {bits} bits: {shortened(value)}")
    return number


def byte_string(value: object, length: int | None = None) -> bytes:
    """Bytes from "0x" and hex; exactly `length` of them where it is given."""
    if not isinstance(value, str) or BYTES.fullmatch(value) is None:
        raise BadAnswer(f"not hex bytes: {shortened(value)}")
    content = bytes.fromhex(value[2:])
    if length is not None and len(content) != length:
        raise BadAnswer(f"{len(content)} bytes instead of {length}")
    return content


def digest(value: object) -> Digest:
    return Digest(byte_string(value, 32))


def address(value: object) -> Address:
    return Address(to_checksum_address(byte_string(value, 20)))


def member(value: object, name: str) -> object:
    """The member `name` of a JSON object."""
    if not isinstance(value, Mapping) or name not in value:
        raise BadAnswer(f"no member {name!r} in {shortened(value)}")
    return value[name]


def array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadAnswer(f"not a list: {shortened(value)}")
    return value


def text(value: object) -> str:
    """An endpoint's own words, cut and printable."""
    return "".join(c if c.isprintable() else " " for c in value[:MAX_MESSAGE]) if isinstance(value, str) else ""


def shortened(value: object) -> str:
    """Enough of a hostile value for a message."""
    return repr(value[:40]) if isinstance(value, str) else type(value).__name__
