"""Room for a checkpoint that is to come: in the store's quota, and on the disk, of which a part stays free."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.base import Digest
from node.errors import ConfigError, StoreError
from node.log import bytes_text
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

    def make(self, what: str, size: int, evict: Callable[[Digest], bool], root: Digest | None) -> None:
        """Room for `what`, of `size` bytes, of which those that have come of `root` are there; `evict` deletes a
        checkpoint and says whether there was one.

        Raises:
            ConfigError: the quota is less than it alone.
            StoreError: there is none, without those that are not to spare, and `root`.
            OSError.
        """
        if self.quota_bytes is not None and size > self.quota_bytes:
            raise ConfigError(
                f"{what} has {bytes_text(size)}, and --quota is {bytes_text(self.quota_bytes)}: give two or three "
                "times that size, since the newest version comes while work goes on with the one before"
            )
        while (why := lack_of_room(self.folder, what, size, self.quota_bytes, root)) is not None:
            if not self.spare_one(evict, root):
                raise StoreError(why)

    def spare_one(self, evict: Callable[[Digest], bool], but: Digest | None) -> bool:
        """Whether there was one to delete."""
        while self.spare:
            root, self.spare = self.spare[0], self.spare[1:]
            if root != but and evict(root):
                log.warning("checkpoint %s was deleted: another one needs the room", root.hex())
                return True
        return False


def lack_of_room(folder: Path, what: str, size: int, quota_bytes: int | None, root: Digest | None = None) -> str | None:
    """Why the store in `folder` has no room for `what`, of `size` bytes, and what to do; None where it has.

    What has come of `root` is part of them. Raises: OSError.
    """
    begun = None if root is None else folder / PARTIAL / root.hex()
    more_bytes = size - sum(allocated_bytes(path) for path in (begun.rglob("*") if begun else ()))
    more = f"{what} has {bytes_text(size)}"
    taken = taken_bytes(folder, begun)
    if quota_bytes is not None and size > quota_bytes - taken:
        return (
            f"{more}, and of the quota of {bytes_text(quota_bytes)}, {bytes_text(taken)} are taken by what is needed: "
            f"give a --quota of {bytes_text(size + taken)} or more"
        )
    usage = shutil.disk_usage(folder)
    reserved = min(usage.total // RESERVED_SHARE, MAX_RESERVED_BYTES)
    if more_bytes > usage.free - reserved:
        return (
            f"{more}, of which {bytes_text(more_bytes)} have to come, and {folder} has {bytes_text(usage.free)} free, "
            f"of which {bytes_text(reserved)} stay so: make room, or choose another data folder"
        )
    return None


def taken_bytes(folder: Path, but: Path | None = None) -> int:
    """What checkpoints in the store take of the disk, without the one in `but`; those that are being received count as
    what they will take, holes and all. Raises: OSError.
    """
    whole = sum(allocated_bytes(path) for path in (folder / CHECKPOINTS).rglob("*"))
    begun = [path for path in (folder / PARTIAL).rglob("*") if but is None or but not in path.parents]
    return whole + sum(max(allocated_bytes(path), _full_bytes(path)) for path in begun)


def allocated_bytes(path: Path) -> int:
    """Of one file or folder without what is in it; holes take nothing, and what has gone neither."""
    try:
        return path.stat().st_blocks * BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _full_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
