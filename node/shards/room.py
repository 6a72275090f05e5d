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


class OverQuota(StoreError):
    """The quota has no room. `is_news`: it is the first time since this process began, and all that needs saying: a
    quota for one or two versions is met at every one."""

    def __init__(self, why: str, *, is_news: bool) -> None:
        super().__init__(why)
        self.is_news = is_news


def is_news(error: Exception) -> bool:
    """Whether what kept a checkpoint away is to be said: all but that the quota is full once more."""
    return not isinstance(error, OverQuota) or error.is_news


@dataclass(slots=True)
class Room:
    """Of the store in `folder`. `spare` goes where it must, the first one first; that the quota had it go is said once,
    and so is that it refused."""

    folder: Path
    quota_bytes: int | None
    spare: tuple[Digest, ...] = ()
    spared: bool = False  # for the quota
    refused: bool = False  # by the quota

    def make(self, what: str, size: int, evict: Callable[[Digest], bool], root: Digest | None) -> None:
        """Room for `what`, of `size` bytes, of which those that have come of `root` are there; `evict` deletes a
        checkpoint and says whether there was one.

        Raises:
            ConfigError: the quota is less than it alone.
            StoreError: there is none, without those that are not to spare, and `root`. OverQuota: in the quota.
            OSError.
        """
        if self.quota_bytes is not None and size > self.quota_bytes:
            raise ConfigError(
                f"{what} has {bytes_text(size)}, and --quota is {bytes_text(self.quota_bytes)}: give two or three "
                "times that size, since the newest version comes while work goes on with the one before"
            )
        begun = None if root is None else self.folder / PARTIAL / root.hex()
        while (why := self._over_quota(what, size, begun)) is not None:
            if not self.spare_one(evict, root, for_quota=True):
                again, self.refused = self.refused, True
                raise OverQuota(why, is_news=not again)
        while (why := _disk_lacks(self.folder, what, size, begun)) is not None:
            if not self.spare_one(evict, root):
                raise StoreError(why)

    def spare_one(self, evict: Callable[[Digest], bool], but: Digest | None, *, for_quota: bool = False) -> bool:
        """Whether there was one to delete."""
        while self.spare:
            root, self.spare = self.spare[0], self.spare[1:]
            if root != but and evict(root):
                say = log.debug if for_quota and self.spared else log.warning
                say("checkpoint %s was deleted: another one needs the room", root.hex())
                self.spared |= for_quota
                return True
        return False

    def _over_quota(self, what: str, size: int, begun: Path | None) -> str | None:
        """Why the quota has no room for `what`, of which those that lie in `begun` are part, and what to do."""
        if self.quota_bytes is None:
            return None
        taken = taken_bytes(self.folder, begun)
        if size <= self.quota_bytes - taken:
            return None
        return (
            f"{what} has {bytes_text(size)}, and of the quota of {bytes_text(self.quota_bytes)}, {bytes_text(taken)} "
            f"are taken by what is needed: give a --quota of {bytes_text(size + taken)} or more"
        )


def _disk_lacks(folder: Path, what: str, size: int, begun: Path | None) -> str | None:
    """Why the disk has no room for what is still to come of `what`, and what to do. Raises: OSError."""
    more_bytes = size - sum(allocated_bytes(path) for path in (begun.rglob("*") if begun else ()))
    usage = shutil.disk_usage(folder)
    reserved = min(usage.total // RESERVED_SHARE, MAX_RESERVED_BYTES)
    if more_bytes <= usage.free - reserved:
        return None
    return (
        f"{what} has {bytes_text(size)}, of which {bytes_text(more_bytes)} have to come, and {folder} has "
        f"{bytes_text(usage.free)} free, of which {bytes_text(reserved)} stay so: make room, or choose another data "
        "folder"
    )


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
        return path.lstat().st_blocks * BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _full_bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
