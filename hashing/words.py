"""`abi.encode` of static values: one 32-byte word each. The only ABI that off-chain hashes need."""

import re

from eth_hash.auto import keccak

from hashing.errors import OutOfRange

WORD_BYTES = 32

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def keccak256(data: bytes) -> bytes:
    """32 bytes; the hash of whatever a contract may have to recompute."""
    return keccak(data)


def integer(value: int, bits: int = 256) -> bytes:
    """An unsigned integer, padded left.

    Raises:
        OutOfRange: it does not fit `bits`.
    """
    if not 0 <= value < 1 << bits:
        raise OutOfRange(f"{value} is no uint{bits}")
    return value.to_bytes(WORD_BYTES, "big")


def address(value: str) -> bytes:
    """An address of the form 0x and 40 hex digits, in any case, padded left.

    Raises:
        OutOfRange: another form.
    """
    if not _ADDRESS.fullmatch(value):
        raise OutOfRange(f"{value!r} is no address")
    return bytes(12) + bytes.fromhex(value[2:])


def digest(value: bytes) -> bytes:
    """A bytes32.

    Raises:
        OutOfRange: another length.
    """
    if len(value) != WORD_BYTES:
        raise OutOfRange(f"digest of {len(value)} bytes instead of {WORD_BYTES}")
    return bytes(value)


def tag(text: str) -> bytes:
    """`bytes32("text")`: ASCII, padded right."""
    return text.encode("ascii").ljust(WORD_BYTES, b"\0")
