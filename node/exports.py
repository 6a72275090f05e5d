"""A version's weights for a person: from this machine's nodes, else from peers."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import Error as CopyError
from shutil import copytree

from ledger.base import NOBODY, Digest, Ledger, Version
from node.bans import BANNED, Bans
from node.clock import SystemClock
from node.config import KEPT_VERSIONS, Home, StateFolder
from node.errors import ConfigError, Malformed, NotFound, StoreError
from node.files import require_new
from node.log import seconds_text
from node.progress import Progress
from node.queries import read_record, run_folders
from node.record import Record
from node.roles.askable import ADVICE, MAX_NAMED, askable
from node.roles.directory import weight_sources
from node.shards.client import Downloader
from node.shards.layout import CHECKPOINTS
from node.shards.manifest import Manifest, build
from node.shards.selection import Selection
from node.shards.store import CheckpointStore
from node.shards.wanted import Pace
from node.transport.connections import Connections

EXPECTED = Pace(wait_seconds=2, brief_wait_seconds=1, patience_seconds=20.0)  # of a version that nodes keep
UNEXPECTED = Pace(wait_seconds=1, brief_wait_seconds=1, patience_seconds=3.0)  # somebody may have it nevertheless

Say = Callable[[str], None]  # takes one line of progress


async def export_checkpoint(
    ledger: Ledger, run: int, version: int, target: Path, home: Home, allow_private: bool, say: Say
) -> None:
    """Writes the model folder of `version` to `target`, from this machine's files, else from peers.

    Raises: ConfigError: `target` exists, or as `fetch_checkpoint`. NotFound: no peer has it now. StoreError.
    """
    await asyncio.to_thread(require_new, target, "name a folder that does not")
    folder = await fetch_checkpoint(ledger, run, version, home, allow_private, say)
    try:
        await asyncio.to_thread(copytree, folder, target)
    except (OSError, CopyError) as error:
        raise StoreError(
            f"{target} could not be written whole ({error}): make room, delete it, and try again"
        ) from error


async def fetch_checkpoint(ledger: Ledger, run: int, version: int, home: Home, allow_private: bool, say: Say) -> Path:
    """The folder of `version` in this user's cache of checkpoints: from a node of the same home, else from peers.

    Raises:
        ConfigError: the version is not published, nobody keeps it any more, or only private addresses could be
            asked.
        NotFound: no peer has it now.
    """
    spec, record = await read_record(ledger, run)
    root = record.root(Version(version))
    if root is None:
        raise ConfigError(f"version {version} is not published: the latest is {record.latest}")
    store = CheckpointStore(home.folder / "exports")
    held = await asyncio.to_thread(_held_here, store, root, home, say)
    if held is not None:
        return held
    sources = _askable(record, version, allow_private)
    base = Digest(bytes.fromhex(spec.model.manifest_root))
    private = "" if allow_private else ", private addresses left out (--allow-private)"
    say(f"version {version}: nodes that may hold it: {len(sources)}{private}")
    progress = Progress("downloading", "bytes", SystemClock(), resumes=True, version=version)
    async with Connections(allow_private) as connections:
        pace = EXPECTED if version in _kept(record) else UNEXPECTED
        bans = await asyncio.to_thread(Bans, store.folder / BANNED)
        selection = Selection(random.Random(), time.monotonic, bans)
        asking = Downloader(store, connections, lambda: sources, selection, pace=pace)
        await asyncio.to_thread(store.remember, await _manifest(asking, record, version, root))
        with progress:
            folder = await replace(asking, pace=Pace(), base=base).fetch(root, progress)
    say(f"version {version} fetched in {seconds_text(progress.seconds)}")
    return folder


def _kept(record: Record) -> list[int]:
    """The versions that nodes have not deleted to make room, ascending."""
    count = len(record.checkpoints)
    return sorted({*range(count)[:1], *range(count)[-KEPT_VERSIONS:]})


async def _manifest(asking: Downloader, record: Record, version: int, root: Digest) -> Manifest:
    """Raises: ConfigError: nobody has that version, and nobody is expected to. NotFound: nobody has it now."""
    try:
        return await asking.manifest(root)
    except NotFound:
        asked, kept = asking.selection.account(asking.sources()), _kept(record)
    if version in kept:
        raise NotFound(
            f"nobody who could be asked has version {version} ({asked}): try again when trainer or relays are up"
        )
    raise ConfigError(
        f"nobody keeps version {version} any more: nodes keep version 0 and the newest {KEPT_VERSIONS}, so "
        f"export one of {', '.join(map(str, kept))} (asked: {asked})"
    )


def _held_here(store: CheckpointStore, root: Digest, home: Home, say: Say) -> Path | None:
    """The folder of `root` in `store`, copied from a node of the home if need be, whose own store is only read."""
    held = store.complete(root)
    for folder in () if held else run_folders(home):
        there = StateFolder(folder).checkpoints / CHECKPOINTS / root.hex()
        if there.is_dir() and _copied(store, root, there):
            say(f"found on this machine: {there}")
            return store.complete(root)
    return held


def _copied(store: CheckpointStore, root: Digest, folder: Path) -> bool:
    """Whether `folder`, in the store of a node that may evict it at any time, was `root`, and is in `store` now."""
    try:
        if build(folder).root != root:
            return False
        store.add(folder)
    except Malformed:
        return False
    except StoreError:
        if folder.is_dir():
            raise
        return False
    return True


def _askable(record: Record, version: int, allow_private: bool) -> list[str]:
    """Endpoints of the nodes that may hold a version. Raises: ConfigError, NotFound: there are none."""
    known = weight_sources(record, NOBODY)
    found = askable(known, allow_private)
    if not known:
        raise NotFound(
            f"version {version} is with no node of this home, and no other node has announced where it can be asked: "
            "try again when trainer or relays are up"
        )
    if not found:
        raise ConfigError(
            f"version {version} is with no node of this home, and all nodes that may hold it announce private "
            f"addresses ({', '.join(known[:MAX_NAMED])}): {ADVICE}"
        )
    return found
