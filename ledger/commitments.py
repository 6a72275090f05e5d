"""The commitment of a submission, as the coordinator computes it."""

from typing import Final

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from ledger.base import Address, Digest, RunId, Version

TAG: Final = b"in/commitment/1".ljust(32, b"\0")  # protocol 1, "Hashes, one per purpose"
TYPES: Final = (
    "bytes32", "uint256", "address", "uint256", "address", "uint64", "uint64", "bytes32", "uint40", "bytes32",
)  # fmt: skip


def commitment(
    chain_id: int,
    coordinator: Address,
    run: RunId,
    node: Address,
    version: Version,
    slot: int,
    root: Digest,
    units: int,
    beacon: Digest,
) -> Digest:
    """Source: protocol 1, "Contract surface"."""
    values = (TAG, chain_id, coordinator, run, node, version, slot, root, units, beacon)
    return Digest(keccak(encode(TYPES, values)))
