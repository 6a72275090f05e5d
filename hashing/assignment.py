"""What a node must do in a slot, and the word that commits what it did: seed, prompts, commitment.

The seed binds everything that a node could otherwise choose, and a beacon that it could not know beforehand, so its
prompts and its noise are not its choice. Byte layouts: protocol, "Seeds, prompts, noise, audit draw, units" and
"Contract surface".
"""

from hashing.errors import OutOfRange
from hashing.sampling import key_of, philox
from hashing.words import address, digest, integer, keccak256, tag

SEED_TAG = tag("in/seed/1")
COMMITMENT_TAG = tag("in/commitment/1")


def seed(
    chain_id: int,
    contract: str,
    run: int,
    spec_digest: bytes,
    version: int,
    manifest_root: bytes,
    node: str,
    slot: int,
    beacon: bytes,
) -> bytes:
    """The 32 bytes from which a slot's prompts and noise follow. `contract` is the run coordinator's address.

    Raises:
        OutOfRange: a value that does not fit its word.
    """
    words = (
        SEED_TAG,
        integer(chain_id),
        address(contract),
        integer(run),
        digest(spec_digest),
        integer(version, 64),
        digest(manifest_root),
        address(node),
        integer(slot, 64),
        digest(beacon),
    )
    return keccak256(b"".join(words))


def commitment(
    chain_id: int,
    contract: str,
    run: int,
    node: str,
    version: int,
    slot: int,
    root: bytes,
    units: int,
    beacon: bytes,
) -> bytes:
    """The 32 bytes that name a submission on chain, as the contract computes them.

    Raises:
        OutOfRange: a value that does not fit its word.
    """
    words = (
        COMMITMENT_TAG,
        integer(chain_id),
        address(contract),
        integer(run),
        address(node),
        integer(version, 64),
        integer(slot, 64),
        digest(root),
        integer(units, 40),
        digest(beacon),
    )
    return keccak256(b"".join(words))


def item_index(seed: bytes, group: int, total: int) -> int:
    """Which of `total` items is the prompt of `group`: the first two words of the group's Philox block, modulo.

    Raises:
        OutOfRange: no items, or a group that is no uint32.
    """
    if total < 1:
        raise OutOfRange("there are no items to draw from")
    high, low, _, _ = philox((group, 0, 0, 0), key_of(seed))
    return (high << 32 | low) % total
