"""Sending files to whoever asks: from disk to socket, within the uplink's limit, and to nobody who hardly reads."""

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from node.files import disk_refused, open_regular
from node.transport.addresses import address_of
from node.transport.limits import Gate, TooMany
from node.transport.places import Lease, Places
from node.transport.uplink import Uplink

OCTETS = "application/octet-stream"
PIECE_BYTES = 4 << 20  # in one call where nothing limits the uplink: a whole chunk of weights

Deadlines = dict[asyncio.BaseTransport, asyncio.Timeout]  # of the requests that are being answered, by connection

GATE = web.AppKey("gate", Gate)
UPLINK = web.AppKey("uplink", Uplink)
DEADLINES = web.AppKey[Deadlines]("deadlines", dict)


async def send_file(
    request: web.Request, path: Path, offset: int = 0, length: int | None = None, kind: str = OCTETS
) -> web.StreamResponse:
    """Answers with `length` bytes of the file from `offset`, all that follow if None.

    Whoever reads slowly holds a socket buffer, not a file, and below `Limits.least_bytes_per_second` not for long.

    Raises:
        FileNotFoundError: there is no such file; no byte was sent.
        StoreError: the disk refuses it, or something else stands there; no byte was sent.
        TooMany: the uplink is busy; no byte was sent.
        ConnectionResetError: the peer has gone, or the file ends early.
    """
    uplink, address = request.app[UPLINK], address_of(request.transport)
    with await asyncio.to_thread(_opened, path) as file:
        size = os.fstat(file.fileno()).st_size - offset if length is None else length
        response = web.StreamResponse(headers={"Content-Type": kind})
        response.content_length = size
        with await _place(uplink.places, address) as lease:
            request.app[GATE].charge(address, size)
            await response.prepare(request)
            await _Sending(request, file, uplink, lease).send(offset, size)
        await response.write_eof()
    return response


def _opened(path: Path) -> BinaryIO:
    try:
        return os.fdopen(open_regular(path), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_refused(path, error) from error


async def _place(places: Places, address: str) -> Lease:
    """Raises: TooMany: none has become free in time."""
    try:
        async with asyncio.timeout(places.place_seconds):
            return await places.take(address)
    except TimeoutError as error:
        detail = "this node uploads as much as it may: ask another one"
        raise TooMany(503, detail, places.place_seconds) from error


def break_off(deadline: asyncio.Timeout) -> None:
    """Ends the request as if it had taken too long."""
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time())


class _Sending:
    """One file on its way to one reader."""

    def __init__(self, request: web.Request, file: BinaryIO, uplink: Uplink, lease: Lease) -> None:
        if request.transport is None:
            raise ConnectionResetError("the peer has gone")
        self._transport = request.transport
        self._deadline = request.app[DEADLINES][request.transport]
        self._limits = request.app[GATE].limits
        self._file = file
        self._uplink = uplink
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()  # later by what was waited for turns

    async def send(self, offset: int, size: int) -> None:
        limited = self._uplink.bytes_per_second is not None
        most = self._uplink.piece_bytes if limited else PIECE_BYTES
        sent = 0
        while sent < size:
            piece = min(most, size - sent)
            if limited:
                await self._turn(piece)
            self._put_off(self._latest(sent, piece))
            with self._lease.watched():
                await self._send(offset + sent, piece)
            sent += piece

    async def _turn(self, piece: int) -> None:
        """Waits for it, for which the reader is not to blame."""
        began = self._loop.time()
        self._put_off(None)
        await self._uplink.turn(address_of(self._transport), piece)
        self._since += self._loop.time() - began

    def _put_off(self, until: float | None) -> None:
        """Raises: ConnectionResetError: it is too late already, or this one has to give way to others."""
        when = self._deadline.when()
        if when is not None and when <= self._loop.time():
            raise ConnectionResetError("it took too long, or others have to be answered")
        self._deadline.reschedule(until)

    def _latest(self, sent: int, piece: int) -> float:
        """When the reader must have taken `piece`: by all that it was given, and by this piece, so that nobody reads
        fast and then stalls."""
        rate = self._limits.least_bytes_per_second
        for_all, for_piece = self._since + (sent + piece) / rate, self._loop.time() + piece / rate
        return min(for_all, for_piece) + self._limits.grace_seconds

    async def _send(self, offset: int, piece: int) -> None:
        """Raises: ConnectionResetError."""
        if self._transport.is_closing():
            raise ConnectionResetError("the peer has gone")
        if await self._loop.sendfile(self._transport, self._file, offset, piece) != piece:
            raise ConnectionResetError(f"{self._file.name} ends early")
        self._uplink.sent_bytes += piece
