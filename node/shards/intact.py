"""Whether files on disk are what a manifest says, and still are what they were when that was found out.

A file's stamp differs once it was written to or replaced: what was hashed before counts no more then. This node writes
where it receives, and notes each stamp itself. Functions raise OSError where nothing else is said.
"""

import os
from pathlib import Path

from blake3 import blake3

from ledger.disk import refusal
from node.files import is_damage, open_regular
from node.shards.holding import Holding, Place, Stamp
from node.shards.manifest import Manifest


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


def stamps(holding: Holding) -> list[Stamp | None]:
    """Of each file, as it is now."""
    return [stamp(holding.path(file)) for file in range(len(holding.manifest.files))]


def locate(holding: Holding, digest: bytes) -> Place | None:
    """Where a verified chunk with that digest lies, which was hashed, and whose file has not changed since."""
    for number in holding.numbers(digest):
        if holding.verified[number] and holding.hashed[number]:
            file = holding.file(number)
            # While this process writes to it, it has just been looked at (`partial`).
            if stamp(holding.path(file)) == holding.stamps[file] or holding.writing.locked():
                return holding.place(number)
    return None


def is_intact(holding: Holding) -> bool:
    """Whether every byte was hashed, and no file has changed since."""
    return holding.whole and 0 not in holding.hashed and stamps(holding) == holding.stamps


def look(holding: Holding, file: int) -> None:
    """Has what was hashed of a file that changed since be hashed again. For those who hold `holding.writing`."""
    now = stamp(holding.path(file))
    if now != holding.stamps[file]:
        holding.doubt(file)
        holding.stamps[file] = now


def why_wrong(holding: Holding, number: int, digest: bytes) -> str | None:
    """Why a chunk is not what it should be; None where it is, hashed now unless it was and its file is the same.

    Raises: FileNotFoundError: there is no such file. OSError.
    """
    file = holding.file(number)
    with holding.writing:
        look(holding, file)
        if holding.hashed[number]:
            return None
        before = holding.stamps[file]
    if before is not None and before.size != holding.manifest.files[file].size:
        return "it has another size"
    try:
        right = blake3(read_place(holding.place(number))).digest() == digest
    except OSError as error:
        if is_damage(error):
            return f"it cannot be read ({refusal(error)})"
        raise
    with holding.writing:
        if right and before == holding.stamps[file] == stamp(holding.path(file)):
            holding.hashed[number] = True
    return None if right else "its bytes have changed"


def read_place(place: Place) -> bytes:
    """The bytes at `place`; fewer where the file ends before."""
    path, offset, length = place
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(offset)
        return file.read(length)
