"""Whether files on disk are what a manifest says, and still are what they were when that was found out.

A file's stamp differs once it was written to or replaced: what was hashed before counts no more then. This node writes
where it receives, and notes each stamp itself. A disk that rots changes no stamp: what is handed out was hashed within
the hour. Functions raise OSError where nothing else is said.
"""

import errno
import os
import time
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from ledger.disk import refusal
from node.files import is_damage, open_regular
from node.shards.holding import NEVER, TICK_NS, Holding, Place, Stamp
from node.shards.manifest import Manifest

HASH_AGAIN_SECONDS = 3600.0  # nothing beside sending a chunk; what is sent within it the page cache has, mostly


class Seen(NamedTuple):
    """Of bytes that were found to be right: the stamp that their file had before, and when. That counts for an hour,
    and as long as the file is the same."""

    stamp: Stamp | None
    at: float

    def lately(self, now: float) -> bool:
        return now - self.at < HASH_AGAIN_SECONDS

    def counts(self, path: Path, now: float) -> bool:
        """Of the file at `path`."""
        return self.lately(now) and self.stamp is not None and self.stamp == stamp(path)


def unread(path: Path, now: float) -> Seen | None:
    """What to note of a file before it is read, should it be right; None where it is not, or could change unnoticed."""
    before = stamp(path)
    return Seen(before, now) if before is not None and is_settled(before) else None


def sizes_agree(folder: Path, manifest: Manifest) -> bool:
    """At a glance: every file is there and has its size."""
    found = ((stamp(folder / file.name), file.size) for file in manifest.files)
    return all(seen is not None and seen.size == size for seen, size in found)


def stamp(path: Path) -> Stamp | None:
    """Of what is at `path`; None where there is nothing, or nothing that can be looked at."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if is_damage(error):
            return None
        raise
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def require_stamp(path: Path) -> Stamp:
    """As `stamp`. Raises: FileNotFoundError: there is nothing."""
    seen = stamp(path)
    if seen is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return seen


def is_settled(seen: Stamp, tick_ns: int = TICK_NS) -> bool:
    """Whether whoever writes to its file from now on changes it. Source: git, Documentation/technical/racy-git.txt."""
    return abs(time.time_ns() - seen.changed_ns) > tick_ns


def stamps(holding: Holding) -> list[Stamp | None]:
    """Of each file, as it is now."""
    return [stamp(holding.path(file)) for file in range(len(holding.manifest.files))]


def locate(holding: Holding, digest: bytes) -> Place | None:
    """Where a verified chunk with that digest lies, which was hashed lately, and whose file is the same since."""
    for number in holding.numbers(digest):
        path = holding.path(holding.file(number))
        if holding.verified[number] and _seen(holding, number).counts(path, holding.now()):
            return holding.place(number)
    return None


def _seen(holding: Holding, number: int) -> Seen:
    """In this order: who looks at a file that has changed doubts what was hashed, then notes the new stamp."""
    noted = holding.stamps[holding.file(number)]
    return Seen(noted, holding.hashed[number])


def is_intact(holding: Holding) -> bool:
    """Whether every byte was hashed, however long ago, and no file has changed since."""
    return holding.whole and stamps(holding) == holding.stamps and NEVER not in holding.hashed


def look(holding: Holding, file: int) -> None:
    """Has what was hashed of a file that changed since be hashed again. For those who hold `holding.writing`."""
    now = stamp(holding.path(file))
    if now != holding.stamps[file]:
        holding.doubt(file)
        holding.stamps[file] = now


def why_wrong(holding: Holding, number: int, digest: bytes) -> str | None:
    """Why a chunk is not what it should be; None where it is, hashed now unless it was lately and its file is the same.

    Raises: FileNotFoundError: there is no such file. OSError.
    """
    file = holding.file(number)
    with holding.writing:
        look(holding, file)
        if _seen(holding, number).lately(holding.now()):
            return None
        before = holding.stamps[file]
    settled = before is not None and is_settled(before, holding.tick_ns)
    if before is not None and before.size != holding.manifest.files[file].size:
        return "it has another size"
    try:
        right = blake3(read_place(holding.place(number))).digest() == digest
    except OSError as error:
        if is_damage(error):
            return f"it cannot be read ({refusal(error)})"
        raise
    with holding.writing:
        if right and settled and before == holding.stamps[file] == stamp(holding.path(file)):
            holding.vouch(number)
    return None if right else "its bytes have changed"


def read_place(place: Place) -> bytes:
    """The bytes at `place`; fewer where the file ends before."""
    path, offset, length = place
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(offset)
        return file.read(length)
