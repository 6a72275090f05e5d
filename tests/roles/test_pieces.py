"""What a role hands out by streams: of which files, and how much of it is in memory."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from ledger.base import Digest
from node.errors import NotFound
from node.p2p.content import PIECE_BYTES, Kind, Piece
from node.roles.pieces import HeldPieces
from node.transport import Uplink
from tests.roles.network import Build, Part
from tests.roles.stage import until

FILE = Digest(b"\x05" * 32)
WAITING = 24


class Queued(Uplink):
    """Notes how often somebody began to wait."""

    turns = 0

    async def turn(self, address: str, size: int) -> None:
        self.turns += 1
        await super().turn(address, size)


@pytest.fixture
async def worker(build: Build) -> Part:
    return await (await build(validators=1)).worker()


async def test_pieces_of_a_file_and_a_manifest_are_handed_out_and_nothing_else(worker: Part, base: Path) -> None:
    data = bytes(range(256)) * 5000  # 1.28 MB: two pieces
    worker.role.maker.intake.store.put(FILE, data)
    pieces, root = HeldPieces(worker.member), worker.member.checkpoints.add(base)
    manifest = worker.member.checkpoints.manifest_path(root).read_bytes()

    assert await pieces.piece(Piece(Kind.FILE, FILE, 0)) == (len(data), data[:PIECE_BYTES])
    assert await pieces.piece(Piece(Kind.FILE, FILE, PIECE_BYTES)) == (len(data), data[PIECE_BYTES:])
    assert await pieces.piece(Piece(Kind.FILE, FILE, 10, 20)) == (len(data), data[10:30])
    assert await pieces.piece(Piece(Kind.MANIFEST, root, 0)) == (len(manifest), manifest)
    assert worker.member.uplink.sent_bytes == len(data) + 20 + len(manifest)
    for nothing in (
        Piece(Kind.FILE, FILE, len(data)), Piece(Kind.FILE, FILE, 2**64 - 1), Piece(Kind.FILE, root, 0),
        Piece(Kind.MANIFEST, FILE, 0),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            await pieces.piece(nothing)


async def test_what_waits_for_the_uplink_is_not_in_memory(worker: Part) -> None:
    worker.role.maker.intake.store.put(FILE, bytes(PIECE_BYTES))
    worker.member.uplink = uplink = Queued(1.0)  # bytes a second: the first goes, and none for days after it
    pieces = HeldPieces(worker.member)
    tracemalloc.start()
    try:
        asked = [asyncio.create_task(pieces.piece(Piece(Kind.FILE, FILE, 0))) for _ in range(WAITING)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)  # whichever came first to the uplink
        await until(lambda: uplink.turns == WAITING)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    assert held < 3 * PIECE_BYTES
