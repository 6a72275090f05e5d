"""Files that survive a kill: written beside their place, synced, then renamed into it; what may stand in a file's place
instead; and what a disk may refuse."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from ledger.disk import DISK_FULL, refusal
from node.errors import ConfigError, StoreError

FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NO_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})  # a link, a folder, a pipe that nobody reads
BROKEN = frozenset(  # a sector; what a file system found; a file in a folder's place
    {errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO), errno.ENOTDIR}
)


class OddFile(OSError):
    """What stands in a file's place is none of this program's: a folder, a pipe, a link, or too large."""


def is_damage(error: OSError) -> bool:
    """Whether what lies there is to blame, and will be when it is tried again."""
    return isinstance(error, OddFile) or error.errno in BROKEN


def disk_refused(what: Path | str, error: OSError) -> StoreError:
    """What the operating system said about `what`, with what to do where that is known."""
    said = refusal(error)
    if error.errno in DISK_FULL:
        limit = "this process may not write a file so large" if error.errno == errno.EFBIG else "the disk is full"
        return StoreError(
            f"{what}: {said}: {limit}. Make room (`intellect-node paths` names the folders), then run this again: it "
            "goes on from there"
        )
    if error.errno in FORBIDDEN:
        return StoreError(f"{what}: {said}: correct the owner or mode of it and its folder, or name another --home")
    return StoreError(f"{what}: {said}")


def write_atomically(path: Path, data: bytes, temporary: Path | None = None) -> None:
    """Writes `data` to `path`: after the call it survives a power cut; until then the old file or none is there.

    By way of `temporary`, on the same file system; the same name with .tmp if none is given. Raises: StoreError;
    nothing is left there then.
    """
    temporary = temporary or path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()  # on a full disk, half a file is room
            raise
        sync(path.parent)
    except OSError as error:
        raise disk_refused(path, error) from error


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`. Waits for nobody at the other end of a pipe, and follows no link.

    Raises: OddFile: something else stands there. OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in NO_FILE:
            raise OddFile(error.errno, "no file, but a folder, a link or a pipe", str(path)) from error
        raise
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OddFile(errno.EISDIR, "no file, but a folder, a pipe or a device", str(path))
    return descriptor


def read_regular(path: Path, most_bytes: int) -> bytes:
    """All of the regular file at `path`. Raises: OddFile: something else stands there, or more. OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        too_large = os.fstat(file.fileno()).st_size > most_bytes
        data = b"" if too_large else file.read(most_bytes + 1)
    if too_large or len(data) > most_bytes:
        raise OddFile(errno.EINVAL, f"larger than the {most_bytes} bytes that it can have", str(path))
    return data


def require_new(path: Path, advice: str) -> None:
    """Refuses to write over what the user has. `advice` is for the message. Raises: ConfigError."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ConfigError(f"{path} cannot be written ({refusal(error)}): name another one") from error
    raise ConfigError(f"{path} exists: {advice}")


def require_writable(folder: Path) -> None:
    """Makes `folder`, and finds out now whether files can be written into it, before anything depends on it.

    Raises:
        ConfigError: it cannot be a folder of this user's.
        StoreError: the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
    except OSError as error:
        if error.errno in DISK_FULL:
            raise disk_refused(folder, error) from error
        raise ConfigError(
            f"folder {folder} cannot be written to ({refusal(error)}): correct its owner or mode, or name another one"
        ) from error


def read_text(path: Path, limit: int, what: str) -> str:
    """The UTF-8 text in a small file that the user named; nothing of it gets into a message. `what` is for messages.

    Raises: ConfigError.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ConfigError(f"{what} {path} cannot be read: {refusal(error)}") from error
    if len(data) > limit:
        raise ConfigError(f"{what} {path} is over {limit} bytes: name another file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        problem = f"{what} {path} is not UTF-8 text: name another file"
    raise ConfigError(problem)  # outside the handler: the error there holds the bytes


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
        raise disk_refused(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another process of this machine already runs this key in this run (it holds {path}): stop it first"
            ) from error
        except OSError as error:
            raise disk_refused(f"{path} cannot be locked", error) from error
        yield
