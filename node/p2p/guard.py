"""What stands between a peer's bytes and py-libp2p: exact reads, limits, and an end for who sends or takes nothing.

Faults of py-libp2p 0.8.1 that this is for: its yamux does not enforce the window that it grants, so that a peer could
fill the memory by a stream that nobody reads; a write waits for ever for a peer that takes nothing; reading gives up
after 100 pieces, however small they were; and a length that anybody names is believed, whatever it is.
"""

import struct
from collections.abc import Callable

import trio
from libp2p.abc import ISecureConn
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.stream_muxer.yamux.yamux import FLAG_RST, HEADER_SIZE, TYPE_DATA, YAMUX_HEADER_FORMAT, Yamux

from node.buckets import Bucket
from node.p2p.limits import (
    IDLE_SECONDS,
    MAX_BUFFERED_BYTES,
    MAX_FRAME_BYTES,
    MAX_SECURE_BYTES,
    MAX_UNKNOWN_BUFFERED_BYTES,
    UNKNOWN_FRAMES_BURST,
    UNKNOWN_FRAMES_PER_SECOND,
    WRITE_SECONDS,
)


class ExactStream(ReadWriteCloser):  # type: ignore[misc]  # libp2p's types are not followed
    """A TCP connection whose reads give all that was asked for, or what came before the end."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def read(self, n: int | None = None) -> bytes:
        _require_readable(n, MAX_SECURE_BYTES)
        pieces = bytearray()
        try:
            while n is None or len(pieces) < n:
                piece = await self._stream.receive_some(None if n is None else n - len(pieces))
                pieces += piece
                if not piece or n is None:
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(f"the connection broke: {error}", transport="tcp") from error
        return bytes(pieces)

    async def write(self, data: bytes) -> None:
        """Whole, even where the writer is cancelled: after half a frame nothing could follow."""
        try:
            with trio.CancelScope(shield=True), trio.fail_after(WRITE_SECONDS):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            await trio.aclose_forcefully(self._stream)
            raise ConnectionClosedError(f"the connection broke: {error}", transport="tcp") from error

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def get_remote_address(self) -> tuple[str, int] | None:
        return None


def _require_readable(n: int | None, most: int) -> None:
    """Raises ConnectionClosedError for more than any frame has: room would be made for it before it came."""
    if n is not None and n > most:
        raise ConnectionClosedError(f"{n} bytes at once", transport="tcp")


def _nobody(stream: int) -> None:
    return None


class Guard:
    """A secured connection as yamux sees it. Frames are counted and weighed before yamux gets them."""

    def __init__(self, secured: ISecureConn) -> None:
        self._secured = secured
        self.is_initiator = secured.is_initiator
        self._most = MAX_UNKNOWN_BUFFERED_BYTES
        self._muxed: Yamux | None = None
        self._left = 0  # of the frame's body
        self.frames = Bucket(UNKNOWN_FRAMES_PER_SECOND, UNKNOWN_FRAMES_BURST, trio.current_time)
        self.left: Callable[[int], None] = _nobody  # hears which stream the peer has reset

    def watch(self, muxed: Yamux) -> None:
        """From here on what is read are yamux's frames."""
        self._muxed = muxed

    def admit(self, frames: Bucket) -> None:
        """The peer is identified: more of it may wait to be read, and its frames count as its node's."""
        self._most, self.frames = MAX_BUFFERED_BYTES, frames

    async def read(self, n: int | None = None) -> bytes:
        _require_readable(n, MAX_FRAME_BYTES)
        try:
            with trio.fail_after(IDLE_SECONDS):
                data: bytes = await self._secured.read(n)
        except trio.TooSlowError as error:
            raise ConnectionClosedError("nothing came", transport="tcp") from error
        if self._muxed is not None:
            await self._look(self._muxed, data)
        return data

    async def _look(self, muxed: Yamux, data: bytes) -> None:
        """Yamux reads a head, then its body: both are known here by their turn. Raises: ConnectionClosedError."""
        if self._left:
            self._left = max(0, self._left - len(data))
            return
        if len(data) != HEADER_SIZE:
            return  # cut off: yamux finds that out
        _, kind, flags, stream, length = struct.unpack(YAMUX_HEADER_FORMAT, data)
        if flags & FLAG_RST:
            self.left(stream)
        if kind == TYPE_DATA:
            self._left = length
            held = sum(map(len, muxed.stream_buffers.values()))
            if length > MAX_FRAME_BYTES or held + length > self._most:
                raise ConnectionClosedError(f"stream {stream}: more than a peer may send unread", transport="tcp")
        await trio.sleep(self.frames.overdraw())

    async def write(self, data: bytes) -> None:
        await self._secured.write(data)

    async def close(self) -> None:
        await self._secured.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        return None
