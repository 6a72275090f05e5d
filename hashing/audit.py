"""Which leaves of a submission are audited, and by whom. Anyone can recompute it; nobody can know it beforehand.

One point is drawn in each of A equal stretches of the work, so that a leaf is drawn in proportion to its units and
independently of the others' order: evenly spaced points would let a cheat align its bad leaves between them.
Source: protocol, "Seeds, prompts, noise, audit draw, units".
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from hashing.errors import OutOfRange
from hashing.words import address, digest, integer, keccak256, tag

AUDIT_TAG = tag("in/audit/1")
AUDITORS_PER_LEAF = 2  # so that one blind auditor alone cannot pass a leaf


def audit_key(audit_beacon: bytes, commitment: bytes) -> bytes:
    """The 32 bytes from which draw and auditors follow.

    Raises:
        OutOfRange: a digest of another length.
    """
    return keccak256(AUDIT_TAG + digest(audit_beacon) + digest(commitment))


def draw(key: bytes, units: Sequence[int], expected: int) -> tuple[int, ...]:
    """Leaves to audit, ascending, each once: all of them where `expected` (A) is at least their number.

    units: of each leaf, at least 1; their sum is what was committed.

    Raises:
        OutOfRange: no leaves, a leaf without units, or an `expected` below 1.
    """
    if not units or min(units) < 1 or expected < 1:
        raise OutOfRange("a draw needs at least one leaf, one unit per leaf and one expected leaf")
    if expected >= len(units):
        return tuple(range(len(units)))
    ends = list(accumulate(units))
    return tuple(sorted({bisect_right(ends, point) for point in points(key, ends[-1], expected)}))


def points(key: bytes, total: int, expected: int) -> tuple[int, ...]:
    """One unit of work in each of `expected` equal stretches of `total` units, which is at least as many."""
    bounds = [k * total // expected for k in range(expected + 1)]
    return tuple(
        low + int.from_bytes(keccak256(digest(key) + integer(k)), "big") % (high - low)
        for k, (low, high) in enumerate(pairwise(bounds))
    )


def auditors(key: bytes, leaf: int, validators: Sequence[str]) -> tuple[str, ...]:
    """The two of `validators` (or all, where fewer) that audit `leaf`, ascending by address.

    Raises:
        OutOfRange: a malformed address, or a leaf that is no uint32.
    """
    prefix = digest(key) + integer(leaf, 32)
    ranked = sorted(validators, key=lambda validator: keccak256(prefix + address(validator)))
    return tuple(sorted(ranked[:AUDITORS_PER_LEAF], key=address))
