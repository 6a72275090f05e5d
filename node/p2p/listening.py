"""The socket on which the libp2p process takes connections. It is the node's, so that the port outlives the process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from node.errors import ConfigError
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.keys import public_key_of

BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class Listening:
    """A listening socket, and by which key (`secret`, Ed25519) peers know who answers there."""

    socket: socket.socket
    allow_private: bool
    secret: bytes = field(repr=False)

    @property
    def address(self) -> PeerAddress:
        host, port = self.socket.getsockname()[:2]
        return PeerAddress(str(host), int(port), peer_id(public_key_of(self.secret)))


@contextmanager
def listening(host: str, port: int, allow_private: bool, secret: bytes) -> Iterator[Listening]:
    """Listens while the block runs; port 0 takes a free one. Raises: ConfigError: the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        left = "; `ss -ltnp` names who has it, perhaps a process that a killed node left" if port else ""
        raise ConfigError(
            f"cannot listen on {host}:{port} for libp2p: {error.strerror}{left}; choose another --p2p-port, or --no-p2p"
        ) from error
    with taken:
        yield Listening(taken, allow_private, secret)
