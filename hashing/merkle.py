"""The Merkle tree over a rollout file's leaves. The leaves' own bytes are not made here.

Inner nodes hash under the prefix 0x01, leaves' preimages begin with 0x00, so that no inner node passes for a leaf
(RFC 6962, section 2.1). The last node of a level with an odd count goes up unchanged.
"""

from collections.abc import Sequence

from hashing.errors import OutOfRange
from hashing.words import keccak256

NODE_PREFIX = b"\x01"


def leaf_hash(preimage: bytes) -> bytes:
    """keccak256 of a leaf's preimage, which carries its prefix 0x00 itself."""
    return keccak256(preimage)


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Root of the tree over `leaf_hashes`, in order; a single leaf is its own root.

    Raises:
        OutOfRange: no leaves.
    """
    if not leaf_hashes:
        raise OutOfRange("a tree needs at least one leaf")
    level = list(leaf_hashes)
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def path(leaf_hashes: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Siblings of leaf `index`, bottom-up, only where one exists.

    Raises:
        OutOfRange: no such leaf.
    """
    if not 0 <= index < len(leaf_hashes):
        raise OutOfRange(f"leaf {index} of {len(leaf_hashes)}")
    siblings = []
    level = list(leaf_hashes)
    while len(level) > 1:
        if index ^ 1 < len(level):
            siblings.append(level[index ^ 1])
        level = _parents(level)
        index >>= 1
    return tuple(siblings)


def verify_path(root: bytes, leaf: bytes, index: int, rows: int, path: Sequence[bytes]) -> bool:
    """Whether `path` leads from the hash `leaf` at `index` of `rows` leaves to `root`.

    Length and sides follow from `index` and `rows`; a path that is too long or too short is wrong.
    """
    if not 0 <= index < rows:
        return False
    node, siblings = leaf, iter(path)
    while rows > 1:
        if index ^ 1 < rows:
            sibling = next(siblings, None)
            if sibling is None or len(sibling) != len(root):
                return False
            node = _parent(sibling, node) if index & 1 else _parent(node, sibling)
        index >>= 1
        rows = (rows + 1) // 2
    return node == root and next(siblings, None) is None


def _parents(level: list[bytes]) -> list[bytes]:
    pairs = [_parent(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return pairs + level[len(level) - len(level) % 2 :]


def _parent(left: bytes, right: bytes) -> bytes:
    return keccak256(NODE_PREFIX + left + right)
