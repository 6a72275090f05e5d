"""Whose turn it is: validators act one after the other, by the commitment's hash.

Whoever's turn passes unused, the next one acts. Two that act at once cost gas, never money.
"""

from ledger.base import Digest
from node.roles.member import Member

TURN_SECONDS = 6  # of block time: how long a validator's turn lasts


def is_turn(member: Member, commitment: Digest, since: int) -> bool:
    """Whether it is this validator's turn, or was; `since` is the block time when acting became possible."""
    order = member.run.params.validators
    rank = (order.index(member.account) - int.from_bytes(commitment[:4])) % len(order)
    return member.record.head.time >= since + rank * TURN_SECONDS
