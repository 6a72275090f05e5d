"""Who a node is among its peers, and what it takes for true: its keys, and the chain's record."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from eth_account.signers.base import BaseAccount

from ledger.base import Address, Digest
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.keys import public_key_of


@dataclass(frozen=True, slots=True)
class Chain:
    """What the chain's record says, asked anew each time; nothing else is believed about who is who."""

    belongs: Callable[[Address], bool]
    endpoint_of: Callable[[Address], str | None]
    core: Callable[[], Iterable[PeerAddress]]  # of those that everybody needs: they are dialled first, and for ever
    nodes: Callable[[], Iterable[PeerAddress]]  # of others
    is_open: Callable[[Digest], bool]  # a commitment whose submission is not final yet
    keeps: Callable[[Digest, Address], bool]  # whether a node is to hold that commitment's file
    time: Callable[[], int]  # of the latest block


@dataclass(frozen=True, slots=True)
class Myself:
    """Who this node is: the account that the chain knows, its libp2p secret, and where it can be reached, if at all."""

    account: BaseAccount
    secret: bytes = field(repr=False)
    endpoint: str = ""  # as peers are told; empty: nobody can connect
    host: str | None = None  # of the endpoint; None: nobody can connect
    bootstrap: tuple[PeerAddress, ...] = ()  # that the user named

    @property
    def address(self) -> Address:
        return Address(self.account.address)

    @property
    def peer(self) -> str:
        return peer_id(public_key_of(self.secret))
