"""What one peer, and all together, may take of the libp2p process: sizes, numbers, times."""

MIB = 1 << 20
MAX_BODY_BYTES = MIB + 1024  # of a request or an answer: a piece of content, and its head
MAX_SECURE_BYTES = 64 << 10  # read at once of the bare connection: what Noise has in one message, and less before it
MAX_FRAME_BYTES = 256 << 10  # yamux's initial window: what an honest peer can have in one frame at first
MAX_BUFFERED_BYTES = 4 * MIB  # sent by one identified peer and not read yet; py-libp2p itself has no limit
MAX_UNKNOWN_BUFFERED_BYTES = 64 << 10  # likewise of one that is not identified yet
MAX_UNTAKEN_BYTES = 64 * MIB  # of answers to all peers that they have not taken yet
MEMORY_BYTES = 1 << 30  # of address space beyond what the process has when it is ready; over it, it ends

MAX_PEERS = 128  # identified, at once
CORE_PEERS = 32  # of these places, that only peers are given whom everybody needs, or whom the user named
MAX_CONNECTIONS_PER_PEER = 2  # both sides may dial at the same time
MAX_UNKNOWN = 64  # connections whose peer is not identified yet
MAX_CONNECTIONS = MAX_PEERS * MAX_CONNECTIONS_PER_PEER + MAX_UNKNOWN
MAX_CONNECTIONS_PER_ADDRESS = 64  # IPv4 address or IPv6 /64
MAX_UNKNOWN_PER_ADDRESS = 16
MAX_REQUESTS_PER_PEER = 8  # at once
MAX_REQUESTS = 64  # at once, of all peers
MAX_ASKS = 64  # that this node waits for at once
HANDSHAKES_PER_SECOND, HANDSHAKES_BURST = 5.0, 64.0  # of one address: each costs milliseconds of computing
MAX_ADDRESSES = 1024  # whose rate is remembered
MAX_NODES = 4_096  # likewise, and what they announced
MAX_INTRODUCTIONS = 4  # that a peer may try on one connection: each may cost a signature's recovery

HANDSHAKE_SECONDS = 10.0  # for TCP, Noise and yamux together
IDENTIFY_SECONDS = 10.0  # from then on, for a peer to say who it is
WRITE_SECONDS = 10.0  # for a peer to take one frame
IDLE_SECONDS = 100.0  # without a byte; yamux pings every 30 s
REQUEST_SECONDS = 30.0  # of a peer, from its first byte to the last one of the answer
DIAL_SECONDS = 10.0

REQUESTS_PER_SECOND, REQUESTS_BURST = 20.0, 200.0  # of one node; a burst of announcements is a few batches
FRAMES_PER_SECOND, FRAMES_BURST = 2_000.0, 4_000.0  # of one node; a MiB is 17 frames
UNKNOWN_FRAMES_PER_SECOND, UNKNOWN_FRAMES_BURST = 50.0, 200.0  # of one connection; to say who one is takes 10
