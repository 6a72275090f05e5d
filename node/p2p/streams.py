"""One request and its answer on a stream of their own: sizes first, each within its time.

Request: u32 length || body, then the end of that side. Answer: u8 status || u32 length || body, then the end.
Big-endian. Whoever reads takes all into memory before anything is done with it: py-libp2p ends a stream whose reader
waits for five seconds.
"""

import struct
from collections.abc import Sequence

import trio
from cryptography.exceptions import InvalidTag
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.protocol_muxer.multiselect import Multiselect
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from libp2p.stream_muxer.yamux.yamux import YamuxStream
from noise.exceptions import NoiseInvalidMessage

from node.errors import Malformed
from node.p2p.limits import MAX_BODY_BYTES

LENGTH = struct.Struct("!I")
ANSWER = struct.Struct("!BI")

# What ends a connection or a stream, and no more: what py-libp2p 0.8.1 and what it is made of raise for a peer's bytes,
# and for peers that are gone or slow. All else is a bug, which is not to be taken for a bad peer.
REFUSALS = (
    BaseLibp2pError,  # its own, all of them
    NoiseInvalidMessage, InvalidTag,  # a frame, and a handshake, that was tampered with
    ValueError,  # keys and payloads of a handshake that are none; names of protocols that are no UTF-8
    LookupError,  # a stream that yamux has forgotten meanwhile
    OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError,
    RuntimeError,  # trio's, of a connection that ended while it was begun
    MemoryError,  # for an answer that is too much
    Malformed,
)  # fmt: skip


async def read_request(stream: YamuxStream, protocols: Sequence[str]) -> tuple[str, bytes]:
    """The protocol of `protocols` that the peer chose, and its request. Raises: `REFUSALS`."""
    known = {TProtocol(name): None for name in protocols}
    chosen, _ = await Multiselect({**known}).negotiate(MultiselectCommunicator(stream))
    (length,) = LENGTH.unpack(await _exactly(stream, LENGTH.size))
    if length > MAX_BODY_BYTES:
        raise Malformed(f"a request of {length} bytes")
    body = await _exactly(stream, length)
    await _end(stream)
    return str(chosen), body


async def write_answer(stream: YamuxStream, status: int, body: bytes) -> None:
    await stream.write(ANSWER.pack(status, len(body)))  # apart: together they are a copy of it
    await stream.write(body)
    await stream.close()


async def exchange(stream: YamuxStream, protocol: str, body: bytes, limit: int) -> tuple[int, bytes]:
    """The peer's status and answer to `body`, of at most `limit` bytes. Raises: `REFUSALS`."""
    await MultiselectClient().select_one_of([TProtocol(protocol)], MultiselectCommunicator(stream))
    await stream.write(LENGTH.pack(len(body)) + body)
    await stream.close()
    status, length = ANSWER.unpack(await _exactly(stream, ANSWER.size))
    if length > limit:
        raise Malformed(f"an answer of {length} bytes; at most {limit} are read")
    answer = await _exactly(stream, length)
    await _end(stream)
    return status, answer


async def forget(stream: YamuxStream) -> None:
    """Ends `stream` in both directions, so that nothing is kept of it, whatever the peer does."""
    with trio.CancelScope(shield=True), trio.move_on_after(1.0):
        try:
            await stream.reset()
        except REFUSALS:
            return  # the connection is gone, and its streams with it


async def _exactly(stream: YamuxStream, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        data += await stream.read(length - len(data))
    return bytes(data)


async def _end(stream: YamuxStream) -> None:
    """Waits for the peer to end its side. Raises: Malformed: more came."""
    try:
        more = await stream.read(1)
    except MuxedStreamEOF:
        return
    if more:
        raise Malformed("more bytes than were announced")
