"""One secured connection with one peer: its streams accepted, answered and ended, within limits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from libp2p.transport.upgrader import TransportUpgrader

from node.buckets import Bucket
from node.errors import Malformed
from node.p2p.guard import ExactStream, Guard
from node.p2p.limits import (
    IDENTIFY_SECONDS,
    MAX_INTRODUCTIONS,
    MAX_REQUESTS_PER_PEER,
    REQUEST_SECONDS,
    WRITE_SECONDS,
)
from node.p2p.messages import BUSY
from node.p2p.protocols import IDENTITY, PROTOCOLS
from node.p2p.streams import REFUSALS, exchange, forget, read_request, write_answer
from node.p2p.untaken import Untaken

if TYPE_CHECKING:
    from trio_typing import TaskStatus

ADMISSION_SECONDS = 2.0  # that a request waits for the other side's admission, which may be on its way

Handler = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]  # (peer, protocol, request): (status, answer)


def make_upgrader(secret: bytes) -> tuple[TransportUpgrader, str]:
    """What makes a TCP connection a secured one with streams, and this node's peer id.

    Noise and yamux, nothing else: left to itself py-libp2p also takes plaintext from a dialer, which proves nothing.
    """
    pair = create_new_key_pair(secret)
    noise = Noise(pair, noise_privkey=create_noise_key_pair().private_key)
    return TransportUpgrader({NOISE: noise}, {YAMUX: Yamux}), str(ID.from_pubkey(pair.public_key).to_base58())


@dataclass(slots=True, eq=False)
class Connection:
    """With `peer`, by its secured connection; `address` is its subscriber's."""

    peer: str
    address: str
    dialled: bool
    muxed: Yamux
    guard: Guard
    stream: trio.SocketStream
    admitted: trio.Event = field(default_factory=trio.Event)
    serving: int = 0
    answering: dict[int, trio.CancelScope] = field(default_factory=dict)  # by stream
    introductions: int = 0  # that were tried, before one succeeded
    node: str = ""  # whose the peer is, from its admission on
    requests: Bucket | None = None  # that node's

    def admit(self, node: str, requests: Bucket, frames: Bucket) -> None:
        """The peer is `node`'s, whose other connections, now and before, have the same limits."""
        self.node, self.requests = node, requests
        self.guard.admit(frames)
        self.admitted.set()

    async def serve(
        self,
        handler: Handler,
        untaken: Untaken,
        ready: Callable[[], Awaitable[None]],
        task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answers what the peer asks by `handler`, until the connection is over or the peer stays unknown.

        `ready` is called as soon as the peer can be asked.
        """
        self.guard.left = self._left
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._mux, nursery.cancel_scope)
            await self.muxed.event_started.wait()
            await ready()
            task_status.started()
            nursery.start_soon(self._accept, handler, untaken, nursery)
            with trio.move_on_after(IDENTIFY_SECONDS):
                await self.admitted.wait()
            if not self.admitted.is_set():
                nursery.cancel_scope.cancel()

    async def _mux(self, scope: trio.CancelScope) -> None:
        try:
            await self.muxed.start()
        except (*REFUSALS, ExceptionGroup):  # yamux runs in a nursery of its own
            pass  # which is this connection's end
        finally:
            scope.cancel()

    async def _accept(self, handler: Handler, untaken: Untaken, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = cast(YamuxStream, await self.muxed.accept_stream())
            except MuxedConnUnavailable:
                nursery.cancel_scope.cancel()
                return
            if self.serving >= MAX_REQUESTS_PER_PEER:
                await forget(stream)
                continue
            self.serving += 1
            nursery.start_soon(self._answer, stream, handler, untaken)

    async def _answer(self, stream: YamuxStream, handler: Handler, untaken: Untaken) -> None:
        try:
            with trio.fail_after(REQUEST_SECONDS) as self.answering[stream.stream_id]:
                protocol, body = await read_request(stream, PROTOCOLS)
                await self._require_admitted(protocol)
                answer = await handler(self.peer, protocol, body) if self._may_ask() else (BUSY, b"")
                with untaken.answer(self.node, len(answer[1])):
                    await write_answer(stream, *answer)
        except REFUSALS:
            await forget(stream)
        finally:
            self.serving -= 1
            self.answering.pop(stream.stream_id, None)

    def _left(self, stream: int) -> None:
        """The peer has given up what it asked on `stream`: nothing more is done for it, and nothing sent."""
        if (scope := self.answering.get(stream)) is not None:
            scope.cancel()

    async def _require_admitted(self, protocol: str) -> None:
        """Raises: Malformed: the peer asks for more than who this is, and has not said who it is."""
        if protocol == IDENTITY:
            return
        with trio.move_on_after(ADMISSION_SECONDS):
            await self.admitted.wait()
        if not self.admitted.is_set():
            raise Malformed("not identified")

    def _may_ask(self) -> bool:
        if self.requests is not None:
            return self.requests.take()
        self.introductions += 1
        return self.introductions <= MAX_INTRODUCTIONS

    async def ask(self, protocol: str, body: bytes, limit: int, seconds: float) -> tuple[int, bytes]:
        """The peer's status and answer. Raises: `REFUSALS`."""
        with trio.fail_after(seconds):
            stream = await self._opened()
            try:
                return await exchange(stream, protocol, body, limit)
            finally:
                if not stream.closed:
                    await forget(stream)

    async def _opened(self) -> YamuxStream:
        """A new stream, in its own time whoever has given up meanwhile: broken off within, py-libp2p keeps one of its
        places for good, and the peer waits for a request that never comes."""
        try:
            with trio.CancelScope(shield=True), trio.fail_after(WRITE_SECONDS):
                return cast(YamuxStream, await self.muxed.open_stream())
        except trio.TooSlowError:
            await self.close()  # nothing gets through, or no place is free any more
            raise

    async def close(self) -> None:
        await trio.aclose_forcefully(self.stream)


async def secured(upgrader: TransportUpgrader, stream: trio.SocketStream, address: str, peer: str | None) -> Connection:
    """`stream` as a secured connection; to `peer`, where this side dialled. Raises: `REFUSALS`."""
    raw = RawConnection(ExactStream(stream), initiator=peer is not None)
    expected = None if peer is None else ID.from_base58(peer)
    safe = await upgrader.upgrade_security(raw, peer is not None, expected)
    guard = Guard(safe)
    found = safe.get_remote_peer()
    muxed = cast(Yamux, await upgrader.upgrade_connection(guard, found))
    guard.watch(muxed)
    return Connection(str(found.to_base58()), address, peer is not None, muxed, guard, stream)
