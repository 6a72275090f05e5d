"""A cached folder of files with pinned digests: built once, under a lock, and moved into place whole."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock

from node.errors import StoreError
from node.files import disk_refused, sync

Say = Callable[[str], None]  # one line of progress
Digests = Mapping[str, str]  # file name -> SHA-256 in hex

READ_BYTES = 1 << 20


def default_cache() -> Path:
    """This user's cache folder for models."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("intellect-node")) / "models"


def cached(cache: Path, name: str, digests: Digests, build: Callable[[Path], None], say: Say) -> Path:
    """The folder `name-<digest>` in `cache`, whose files have exactly the pinned `digests`.

    `build` fills an empty folder beside it, which takes its place only once every digest is right: a build that was
    killed leaves nothing that could be taken for a result. A second process waits for the first.

    Raises:
        StoreError: the disk refused, or the build did not give the pinned bytes.
    """
    folder = cache / f"{name}-{folder_digest(digests)[:16]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f".{folder.name}.lock"):
            if folder.is_dir() and not wrong_files(folder, digests):
                return folder
            _build_whole(folder, digests, build, say)
    except OSError as error:
        raise disk_refused(f"model cache {cache}", error) from error
    return folder


def _build_whole(folder: Path, digests: Digests, build: Callable[[Path], None], say: Say) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.*.partial"):  # of a killed build; we hold the lock
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        build(partial)
        wrong = wrong_files(partial, digests)
        if wrong:
            raise StoreError(f"{folder.name}: building it here gave other bytes than pinned for {', '.join(wrong)}")
        for name in digests:
            sync(partial / name)
        if folder.exists():
            say(f"{folder.name}: the cached files were damaged, replacing them")
            shutil.rmtree(folder)
        partial.chmod(0o755)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def wrong_files(folder: Path, digests: Digests) -> list[str]:
    """Names in `digests` that are missing in `folder` or have other bytes."""
    return [name for name, digest in digests.items() if file_digest(folder / name) != digest]


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes in hex; the empty string if there is no such file."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def folder_digest(digests: Digests) -> str:
    """SHA-256 over the sorted lines `name digest`."""
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()
