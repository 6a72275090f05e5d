"""What a role hands out by streams: of which files, only what they should be, and how much of it is in memory."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from ledger.base import Address, Digest
from node.errors import NotFound
from node.p2p.content import PIECE_BYTES, Kind, Piece
from node.roles.pieces import HeldPieces
from node.rollouts.store import RolloutStore
from node.shards.intact import HASH_AGAIN_SECONDS, Seen, stamp
from node.transport import Uplink
from tests.clocks import HandClock
from tests.roles.network import Build, Part
from tests.roles.stage import until
from tests.shards.checkpoints import flip_unnoticed

ASKER = Address("0x" + "aa" * 20)
FILE = Digest(b"\x05" * 32)
WAITING = 24


class Queued(Uplink):
    """Notes how often somebody began to wait."""

    turns = 0

    async def turn(self, sharer: str, size: int) -> None:
        self.turns += 1
        await super().turn(sharer, size)


@pytest.fixture
async def worker(build: Build) -> Part:
    return await (await build(validators=1)).worker()


def holding(worker: Part, data: bytes) -> HeldPieces:
    """What `worker` hands out, `data` by the name of `FILE` among it."""
    intake = worker.role.maker.intake
    intake.store.put(FILE, data)
    intake.offered[FILE] = Seen(stamp(intake.store.path(FILE)), worker.member.clock.monotonic())
    return HeldPieces(worker.member, worker.mailbox)


async def test_pieces_of_a_file_and_a_manifest_are_handed_out_and_nothing_else(worker: Part, base: Path) -> None:
    data = bytes(range(256)) * 5000  # 1.28 MB: two pieces
    pieces, root = holding(worker, data), worker.member.checkpoints.add(base)
    manifest = worker.member.checkpoints.manifest_path(root).read_bytes()

    assert await pieces.piece(ASKER, Piece(Kind.FILE, FILE, 0)) == (len(data), data[:PIECE_BYTES])
    assert await pieces.piece(ASKER, Piece(Kind.FILE, FILE, PIECE_BYTES)) == (len(data), data[PIECE_BYTES:])
    assert await pieces.piece(ASKER, Piece(Kind.FILE, FILE, 10, 20)) == (len(data), data[10:30])
    assert await pieces.piece(ASKER, Piece(Kind.MANIFEST, root, 0)) == (len(manifest), manifest)
    assert worker.member.uplink.sent_bytes == len(data) + 20 + len(manifest)
    for nothing in (
        Piece(Kind.FILE, FILE, len(data)), Piece(Kind.FILE, FILE, 2**64 - 1), Piece(Kind.FILE, root, 0),
        Piece(Kind.MANIFEST, FILE, 0),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            await pieces.piece(ASKER, nothing)


async def test_a_file_or_manifest_that_the_disk_changed_before_this_process_began_is_not_held(
    build: Build, base: Path
) -> None:
    """Who is given it bans this node."""
    network = await build(validators=1)
    worker = await network.worker()
    commitment, root = await network.commit_honestly(worker), worker.member.checkpoints.add(base)
    whole = RolloutStore(worker.member.state.rollouts).path(commitment)
    for path in (whole, worker.member.checkpoints.manifest_path(root)):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    await worker.stop()
    later = await network.worker(weights=False)  # which would write the manifest anew
    pieces = HeldPieces(later.member, later.mailbox)

    for damaged in (Piece(Kind.FILE, commitment, 0, 10), Piece(Kind.MANIFEST, root, 0, 10)):
        with pytest.raises(NotFound):
            await pieces.piece(ASKER, damaged)

    assert not whole.exists()  # it is to be had from others


async def test_a_file_that_an_earlier_process_left_whole_is_handed_out(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    data = worker.role.maker.intake.store.get(commitment)
    await worker.stop()
    later = await network.worker()

    given = await HeldPieces(later.member, later.mailbox).piece(ASKER, Piece(Kind.FILE, commitment, 0))

    assert data is not None and given == (len(data), data)


async def test_who_keeps_no_rollout_files_hands_out_none(worker: Part) -> None:
    worker.role.maker.intake.store.put(FILE, b"rollouts")

    with pytest.raises(NotFound):
        await HeldPieces(worker.member, None).piece(ASKER, Piece(Kind.FILE, FILE, 0))


async def test_what_waits_for_the_uplink_is_not_in_memory(worker: Part) -> None:
    pieces = holding(worker, bytes(PIECE_BYTES))
    worker.member.uplink = uplink = Queued(1.0)  # bytes a second: the first goes, and none for days after it
    tracemalloc.start()
    try:
        asked = [asyncio.create_task(pieces.piece(ASKER, Piece(Kind.FILE, FILE, 0))) for _ in range(WAITING)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)  # whichever came first to the uplink
        await until(lambda: uplink.turns == WAITING)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    assert held < 3 * PIECE_BYTES


async def test_however_much_one_node_asks_for_another_has_its_share_of_the_uplink(worker: Part) -> None:
    pieces = holding(worker, bytes(PIECE_BYTES))
    worker.member.uplink = Queued(8 * PIECE_BYTES)  # bytes a second
    hog, honest = ASKER, Address("0x" + "bb" * 20)
    order = list[Address]()

    async def ask(asker: Address) -> None:
        await pieces.piece(asker, Piece(Kind.FILE, FILE, 0))
        order.append(asker)

    async def hand_on(asker: Address) -> None:
        await pieces.turn(asker, PIECE_BYTES)
        order.append(asker)

    waiting = [asyncio.create_task(ask(hog)) for _ in range(8)]
    await until(lambda: len(order) == 1)
    await asyncio.gather(ask(honest), hand_on(honest))

    assert order.count(hog) <= 4 and order.count(honest) == 2
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_file_that_rots_is_given_by_no_way_once_it_was_read_an_hour_ago(build: Build) -> None:
    """By stream, whole, and by chunks: of bytes that are not those that were committed to there is no manifest."""
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await worker.member.sync()
    worker.member.clock = clock = HandClock()
    intake, pieces = worker.role.maker.intake, HeldPieces(worker.member, worker.mailbox)
    path = intake.path(commitment)
    assert (await pieces.piece(ASKER, Piece(Kind.FILE, commitment, 0)))[0] == path.stat().st_size
    flip_unnoticed(path)
    clock.now += HASH_AGAIN_SECONDS

    for asked in (
        pieces.piece(ASKER, Piece(Kind.FILE, commitment, 0)), worker.mailbox.submission(commitment),
        worker.mailbox.manifest(commitment),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            await asked
    assert not path.exists()  # it is to be had from others


async def test_no_manifest_is_made_of_a_file_that_a_chunk_was_found_wrong_of(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await worker.member.sync()
    intake, singles = worker.role.maker.intake, worker.member.singles
    (digest,) = (await intake.manifest(commitment)).files[0].chunks
    flip_unnoticed(intake.path(commitment))

    assert singles.vouch(digest) is None
    with pytest.raises(NotFound):
        await intake.manifest(commitment)
