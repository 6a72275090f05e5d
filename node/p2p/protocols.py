"""Names of the stream protocols; their bytes are described on the page "protocol"."""

from typing import Final

IDENTITY: Final = "/intellect/identity/1"
GOSSIP: Final = "/intellect/gossip/1"
PEERS: Final = "/intellect/peers/1"
CONTENT: Final = "/intellect/content/1"
FORWARD: Final = "/intellect/forward/1"
REACH: Final = "/intellect/reach/1"

PROTOCOLS: Final = (IDENTITY, GOSSIP, PEERS, CONTENT, FORWARD, REACH)
