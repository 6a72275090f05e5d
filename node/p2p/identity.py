"""Which node a libp2p peer is: a statement by the node key, checked against the connection and the chain's record."""

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from eth_account.signers.base import BaseAccount
from eth_utils.address import to_checksum_address

from ledger.base import Address
from ledger.errors import InvalidSignature
from ledger.messages import SIGNATURE_BYTES, Domain, PeerIdentity, recover, sign
from node.errors import Malformed
from node.p2p.addresses import peer_id_bytes

STATEMENT: Final = struct.Struct(f"!20sQ{SIGNATURE_BYTES}s")
STATEMENT_BYTES: Final = STATEMENT.size  # 93
VALID_SECONDS: Final = 7 * 86_400  # of block time that a statement is made for
MAX_VALID_SECONDS: Final = 30 * 86_400  # a key that signed for ever could not take it back
MAX_REMEMBERED: Final = 4_096  # statements that were checked


class Stranger(Malformed):
    """Rightly made, but not by a part of this run that this node knows of, or not for this time."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`node` says until `deadline` (block time, seconds) that a peer id is its own."""

    node: Address
    deadline: int
    signature: bytes

    def encode(self) -> bytes:
        """20 bytes of address || u64 deadline || 65 bytes of signature, big-endian."""
        return STATEMENT.pack(bytes.fromhex(self.node[2:]), self.deadline, self.signature)

    @classmethod
    def parse(cls, data: bytes) -> "Statement":
        """Raises: Malformed. The signature is not looked at."""
        if len(data) != STATEMENT_BYTES:
            raise Malformed(f"a statement has {STATEMENT_BYTES} bytes, not {len(data)}")
        node, deadline, signature = STATEMENT.unpack(data)
        return cls(Address(to_checksum_address(node)), deadline, signature)


def make_statement(account: BaseAccount, domain: Domain, peer: str, now: int) -> Statement:
    """`account`'s word that `peer` is its peer id, from `now` (block time) on. `domain` is of the staking contract."""
    node, deadline = Address(account.address), now + VALID_SECONDS
    return Statement(node, deadline, sign(account, domain, PeerIdentity(node, peer_id_bytes(peer), deadline)))


@dataclass(slots=True)
class Identities:
    """Checks statements; one that was found right is not computed again. `belongs` asks the chain's record."""

    domain: Domain
    belongs: Callable[[Address], bool]
    now: Callable[[], int]  # block time
    checked: "OrderedDict[tuple[str, Statement], None]" = field(default_factory=OrderedDict)

    def require(self, peer: str, statement: Statement) -> Address:
        """The node that `peer` is. Raises: Malformed: not signed by it; Stranger: not valid now, or of no run."""
        now = self.now()
        if not now < statement.deadline <= now + MAX_VALID_SECONDS:
            raise Stranger(f"the statement is valid until {statement.deadline}, and it is {now}")
        if not self.belongs(statement.node):
            raise Stranger(f"{statement.node} has no part in the run")
        self._require_signed(peer, statement)
        return statement.node

    def _require_signed(self, peer: str, statement: Statement) -> None:
        if (peer, statement) in self.checked:
            self.checked.move_to_end((peer, statement))
            return
        message = PeerIdentity(statement.node, peer_id_bytes(peer), statement.deadline)
        try:
            signer = recover(self.domain, message, statement.signature)
        except InvalidSignature as error:
            raise Malformed(f"statement: {error}") from error
        if signer != statement.node:
            raise Malformed(f"the statement of {statement.node} is not signed by it")
        self.checked[peer, statement] = None
        if len(self.checked) > MAX_REMEMBERED:
            self.checked.popitem(last=False)
