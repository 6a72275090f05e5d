"""Files that survive a kill: written beside their place, synced, then renamed into it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node.errors import ConfigError, StoreError


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: after the call it survives a power cut; until then the old file or none is there.

    Raises: StoreError.
    """
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Has what is in the file, or which names are in the folder, survive a power cut. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds `path` against a second process for as long as the block runs.

    Raises:
        ConfigError: another process holds it.
        StoreError: the disk refused.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another process of this machine already runs this key in this run (it holds {path}): stop it first"
            ) from error
        except OSError as error:
            raise StoreError(f"{path} cannot be locked: {error.strerror or error}") from error
        yield
