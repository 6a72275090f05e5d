"""A checkpoint while it is received: files with holes, and a byte per verified chunk beside them.

Only chunks that have come take room on the disk; the store's quota counts what is begun in full (`room`).

A byte is written after its chunk and never torn, so a killed process loses at most what it was writing, and two
processes that fetch into one folder do not undo each other's marks. What the marks claim is hashed again by `prepare`,
because after a power failure they may have reached the disk before the chunks.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from node.errors import Malformed
from node.files import disk_refused, open_regular
from node.shards.holding import Holding, Place
from node.shards.intact import look, read_place, stamp, stamps, why_wrong
from node.shards.layout import Layout, disk

log = logging.getLogger(__name__)

VERIFIED = b"\x01"


def prepare(holding: Holding, layout: Layout) -> None:
    """Creates what is missing of the files, and sets `holding.verified` to those marked chunks whose hash is right.

    Raises:
        StoreError: the disk failed.
    """
    with disk(f"cannot prepare {holding.folder}"):
        layout.make_way(holding.folder)
        holding.folder.mkdir(exist_ok=True)
        for number, file in enumerate(holding.manifest.files):
            _make(layout, holding.path(number), file.size)
        marked = _marked(layout, holding)
        holding.stamps = stamps(holding)
        for number, digest in enumerate(holding.digests()):
            if marked[number] == VERIFIED[0]:
                holding.verified[number] = why_wrong(holding, number, digest) is None


def write(holding: Holding, layout: Layout, file: int, chunk: int, data: bytes | memoryview) -> None:
    """Stores one chunk, wherever the checkpoint has it.

    Raises:
        Malformed: there is no such chunk, or `data` is not it; nothing was written.
        FileNotFoundError: the folder has gone: published or evicted meanwhile.
        StoreError: the disk is full or failed.
    """
    try:
        holding.number(file, chunk)
    except IndexError as error:
        raise Malformed(f"checkpoint {holding.root.hex()}: {error}") from error
    entry = holding.manifest.files[file]
    digest = entry.chunks[chunk]
    if len(data) != entry.length(chunk) or blake3(data).digest() != digest:
        raise Malformed(f"chunk {chunk} of {entry.name} is not {digest.hex()}")
    for number in holding.numbers(digest):
        if not holding.verified[number]:
            _write_one(holding, layout.marks(holding.root), number, data)


def copy_known(holding: Holding, layout: Layout, vouch: Callable[[bytes], Place | None]) -> None:
    """Takes the chunks that other checkpoints have, where `vouch` says. Raises: StoreError."""
    for index, file in enumerate(holding.manifest.files):
        for chunk, digest in enumerate(file.chunks):
            place = None if holding.verified[holding.number(index, chunk)] else vouch(digest)
            if place is None:
                continue
            try:
                write(holding, layout, index, chunk, read_place(place))
            except (OSError, Malformed) as error:  # then it is fetched like any other
                log.warning("chunk %s in %s cannot be copied: %s", digest.hex(), place[0], error)


def _write_one(holding: Holding, marks: Path, number: int, data: bytes | memoryview) -> None:
    file, (path, offset, _) = holding.file(number), holding.place(number)
    try:
        with holding.writing:
            look(holding, file)  # before what somebody else did to it cannot be told from this
            _write_at(path, offset, data)
            holding.stamps[file] = stamp(path)
            holding.vouch(number)
        _write_at(marks, number, VERIFIED)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_refused(path, error) from error
    holding.verified[number] = True


def _write_at(path: Path, offset: int, data: bytes | memoryview) -> None:
    descriptor = open_regular(path, os.O_WRONLY)
    try:
        view = memoryview(data)
        while view:
            count = os.pwrite(descriptor, view, offset)
            offset, view = offset + count, view[count:]
    finally:
        os.close(descriptor)


def _make(layout: Layout, path: Path, size: int) -> None:
    descriptor = layout.opened(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _marked(layout: Layout, holding: Holding) -> bytes:
    """Which chunks an earlier process, or another one, says it has verified; a byte each."""
    count = holding.manifest.chunks
    with os.fdopen(layout.opened(layout.marks(holding.root), os.O_RDWR | os.O_CREAT), "r+b") as file:
        marked = file.read(count + 1)
        if len(marked) != count:
            marked = bytes(count)
            file.truncate(0)
            file.seek(0)
            file.write(marked)
    return marked
