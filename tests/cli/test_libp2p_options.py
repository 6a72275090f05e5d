"""What the options of libp2p amount to."""

import pytest

from cli.options import libp2p_of
from node.config import Libp2p
from node.errors import ConfigError

PEER = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


def test_libp2p_is_on_unless_told_otherwise() -> None:
    assert libp2p_of(None, 0, False) == Libp2p(True, 0, ())
    assert libp2p_of([PEER], 4001, True) == Libp2p(False, 4001, (PEER,))


@pytest.mark.parametrize("peer", ["", "203.0.113.7:4001", PEER[:-1], PEER.replace("tcp", "udp"), PEER + " "])
def test_a_peer_that_is_no_address_is_said(peer: str) -> None:
    with pytest.raises(ConfigError, match="--peer: not "):
        libp2p_of([PEER, peer], 0, False)
