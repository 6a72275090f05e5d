"""A file in chunks: each read once, hashed, and written to a copy if one is wanted, by a few threads side by side."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import local

from blake3 import blake3

from node.errors import StoreError

THREADS = 4  # which hold a chunk each


def cut(path: Path, chunk_bytes: int, progress: Callable[[int], None], copy: Path | None = None) -> list[bytes]:
    """The BLAKE3 of each chunk of `path`, the last one shorter; `copy`, a new file, has the bytes that were hashed.

    `progress` gets the bytes so far. Raises: OSError; StoreError: the file became shorter meanwhile.
    """
    with ExitStack() as opened:
        source = opened.enter_context(_open(path, os.O_RDONLY))
        target = None if copy is None else opened.enter_context(_open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        size = os.fstat(source).st_size
        room = local()
        digest = partial(_digest, path, source, target, chunk_bytes, size, room)
        starts = range(0, size, chunk_bytes)
        if len(starts) > 1:
            threads = opened.enter_context(ThreadPoolExecutor(THREADS))
            found = threads.map(digest, starts)
        else:
            found = map(digest, starts)
        digests = []
        for start, each in zip(starts, found, strict=True):
            digests.append(each)
            progress(min(start + chunk_bytes, size))
        return digests


def cut_bytes(data: bytes, chunk_bytes: int) -> list[bytes]:
    """As `cut`, of what a file holds."""
    return [blake3(data[start : start + chunk_bytes]).digest() for start in range(0, len(data), chunk_bytes)]


def _digest(path: Path, source: int, target: int | None, chunk_bytes: int, size: int, room: local, start: int) -> bytes:
    if not hasattr(room, "chunk"):
        room.chunk = memoryview(bytearray(chunk_bytes))  # of this thread
    chunk: memoryview = room.chunk[: size - start]
    count = 0
    while count < len(chunk):
        more = os.preadv(source, [chunk[count:]], start + count)
        if not more:
            raise StoreError(f"{path} became shorter while it was read")
        count += more
    while target is not None and count:
        count -= os.pwrite(target, chunk[-count:], start + len(chunk) - count)
    return blake3(chunk).digest()


@contextmanager
def _open(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
