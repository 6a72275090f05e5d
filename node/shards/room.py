"""Room for a checkpoint that is to come: in the store's quota, and on the disk, of which a part stays free."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest
from node.errors import StoreError
from node.shards.layout import CHECKPOINTS, PARTIAL

log = logging.getLogger(__name__)

RESERVED_SHARE = 20  # a twentieth of the disk stays free for rollouts, the chain's journal and the system
MAX_RESERVED_BYTES = 1 << 30
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are


@dataclass(slots=True)
class Room:
    """Of the store in `folder`. `spare` goes where it must, the first one first."""

    folder: Path
    quota_bytes: int | None
    spare: tuple[Digest, ...] = ()

    def make(self, what: str, more_bytes: int, evict: Callable[[Digest], bool], but: Digest | None) -> None:
        """Room for `more_bytes` of `what`; `evict` deletes a checkpoint and says whether there was one.

        Raises: StoreError: there is none, without those that are not to spare, and `but`. OSError.
        """
        while (why := lack_of_room(self.folder, what, more_bytes, self.quota_bytes)) is not None:
            if not self.spare_one(evict, but):
                raise StoreError(why)

    def spare_one(self, evict: Callable[[Digest], bool], but: Digest | None) -> bool:
        """Whether there was one to delete."""
        while self.spare:
            root, self.spare = self.spare[0], self.spare[1:]
            if root != but and evict(root):
                log.warning("checkpoint %s was deleted: another one needs the room", root.hex())
                return True
        return False


def lack_of_room(folder: Path, what: str, more_bytes: int, quota_bytes: int | None) -> str | None:
    """Why the store in `folder` has no room for `more_bytes` of `what`, and what to do; None where it has.

    Raises: OSError.
    """
    more = f"{what} needs {more_bytes / 1e9:.1f} GB more, and"
    taken = taken_bytes(folder)
    if quota_bytes is not None and more_bytes > quota_bytes - taken:
        return f"{more} {taken / 1e9:.1f} of {quota_bytes / 1e9:.1f} GB are taken: give a larger --quota"
    usage = shutil.disk_usage(folder)
    reserved = min(usage.total // RESERVED_SHARE, MAX_RESERVED_BYTES)
    if more_bytes > usage.free - reserved:
        return (
            f"{more} {folder} has {usage.free / 1e9:.1f} GB free, of which {reserved / 1e9:.1f} GB stay so: make room, "
            "or choose another data folder"
        )
    return None


def taken_bytes(folder: Path) -> int:
    """What checkpoints in the store take of the disk, whole or not. Raises: OSError."""
    kept = [path for kind in (CHECKPOINTS, PARTIAL) for path in (folder / kind).rglob("*")]
    return sum(allocated_bytes(path) for path in kept)


def allocated_bytes(path: Path) -> int:
    """Of one file or folder without what is in it; holes take nothing, and what has gone neither."""
    try:
        return path.stat().st_blocks * BLOCK_BYTES
    except FileNotFoundError:
        return 0
