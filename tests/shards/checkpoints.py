"""Small checkpoints to store."""

import os
import random
from pathlib import Path

from ledger.base import Digest
from node.shards.manifest import CHUNK_BYTES
from node.shards.store import CheckpointStore


def checkpoint(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def chunks_of(source: Path) -> list[tuple[int, int, bytes]]:
    found = []
    for index, path in enumerate(sorted(source.iterdir())):
        data = path.read_bytes()
        for chunk, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            found.append((index, chunk, data[start : start + CHUNK_BYTES]))
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def four_chunks(folder: Path) -> Path:
    """Two and a short one in `weights`, one in `config`."""
    weights = b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"tail"
    return checkpoint(folder, config=b"{}", weights=weights)


def three_chunks(folder: Path) -> Path:
    """A whole one, a short one, a tiny one."""
    weights = random.Random(0).randbytes(CHUNK_BYTES + 300_000)
    return checkpoint(folder, config=b"{}", weights=weights)


def aged(folder: Path) -> None:
    """Has every file below `folder` be of long ago: what is hashed within a tick of its time counts for nothing."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))


def left_long_ago(store: Path, source: Path) -> Digest:
    """The root of a checkpoint like `source`, which an earlier process left in the store."""
    root = CheckpointStore(store).add(source)
    aged(store / "checkpoints")
    return root


def flip(path: Path, place: int = 5) -> None:
    """Changes a bit of the byte at `place`, and the file's time, whose clock ticks only every few milliseconds."""
    path.chmod(0o644)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def flip_unnoticed(path: Path, place: int = 5) -> None:
    """As a disk does it that rots: the file's times stay."""
    before = path.stat()
    flip(path, place)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
