"""HTTP between nodes: what may be asked of a stranger, and what a stranger may ask of this node.

Contents are checked elsewhere, by digest or signature; here are only addresses, sizes, times and numbers.
"""

from node.transport.incoming import make_app, problem, serve
from node.transport.limits import Limits
from node.transport.outgoing import UNREACHABLE, Timeouts, read_limited, session, vet_url
from node.transport.sending import send_file
from node.transport.uplink import Uplink

__all__ = [
    "UNREACHABLE",
    "Limits",
    "Timeouts",
    "Uplink",
    "make_app",
    "problem",
    "read_limited",
    "send_file",
    "serve",
    "session",
    "vet_url",
]
