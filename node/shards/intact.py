"""Whether files on disk are what a manifest says."""

from pathlib import Path

from blake3 import blake3

from node.shards.holding import Holding
from node.shards.manifest import Manifest
from node.shards.partial import read_place


def sizes_agree(folder: Path, manifest: Manifest) -> bool:
    """At a glance: every file is there and has its size."""
    paths = {folder / file.name: file.size for file in manifest.files}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def hashes_agree(holding: Holding) -> bool:
    """Every byte, hashed now; not where a file has gone. Raises: OSError."""
    places = (holding.place(number) for number in range(len(holding.verified)))
    try:
        return all(
            blake3(read_place(place)).digest() == digest
            for place, digest in zip(places, holding.digests(), strict=True)
        )
    except FileNotFoundError:
        return False


def stamps(holding: Holding) -> list[tuple[int, int, int] | None]:
    """Of each file (inode, size, time of the last change in ns), which differ once it was written to or replaced; None
    of what has gone. Raises: OSError."""
    return [_stamp(holding.folder / file.name) for file in holding.manifest.files]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
