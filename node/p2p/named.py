"""The peers that the user named: of each it is said once that it cannot be connected to, and once that it is back."""

from collections.abc import Collection
from dataclasses import dataclass, field

from node.log import event, warn
from node.p2p.addresses import PeerAddress
from node.p2p.link import Link


@dataclass(slots=True)
class Named:
    """`addresses` are theirs. Of others nothing is said: peers come and go."""

    link: Link
    addresses: Collection[PeerAddress]
    missing: set[str] = field(default_factory=set)

    def failed(self, address: PeerAddress, reason: Exception) -> None:
        """There is no connection to `address`; where libp2p itself is off, that is no news of a peer."""
        if address in self.addresses and address.peer not in self.missing and self.link.address is not None:
            self.missing.add(address.peer)
            warn("a --peer cannot be connected to, trying again", peer=address, reason=reason)

    def met(self, peer: str) -> None:
        """It is connected, and has said who it is."""
        if peer in self.missing:
            self.missing.discard(peer)
            event("a --peer is connected now", peer=peer)
