"""Getting a rollout file from whoever holds it: by chunks, from all holders at once, going on where a kill left off.

By what chunks a file can be had only its holders say, and the commitment does not bind it. So a manifest is a hint: the
chunks that it names are checked against it, which shows who sent a wrong one, and the whole file against the committed
root, which shows that whoever gave the manifest lied.
"""

import asyncio
import random
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.progress import Progress
from node.roles.directory import announced_holders, url_of
from node.roles.member import Member
from node.shards.client import Downloader
from node.shards.manifest import Manifest
from node.shards.selection import Selection
from node.shards.store import CheckpointStore

CHUNKS_AT_ONCE = 2
SHARE_SECONDS = 60.0  # for one holder to give a small file: 10 s until it has a place in its uplink, 42 s for 4 MiB
CHUNK_SECONDS = 60.0  # without a single new one, before the next holder's word is taken; for a line of 140 kB/s
# A file that comes more slowly is left; what came of it stays.
LEAST_SECONDS, LEAST_BYTES_PER_SECOND = 60.0, 500e3


@dataclass(slots=True)
class Fetching:
    """Of one node. `folder` has what is being received, a store for each file."""

    member: Member
    folder: Path
    patience_seconds: float = 3.0  # before the next one is asked beside one that has not answered yet
    share_seconds: float = SHARE_SECONDS
    chunk_seconds: float = CHUNK_SECONDS
    least_seconds: float = LEAST_SECONDS
    least_bytes_per_second: float = LEAST_BYTES_PER_SECOND
    rng: random.Random = field(default_factory=random.Random)
    selection: Selection = field(init=False)  # what is known of holders

    def __post_init__(self) -> None:
        self.selection = Selection(self.rng, self.member.clock.monotonic, self.member.bans)

    async def offer(
        self, commitment: Digest, name: str, limit: int, but: Collection[str]
    ) -> tuple[str, bytes | Manifest] | None:
        """What the first holder, not in `but`, has to give, and who that is: a file of one chunk, or the manifest of a
        larger one, of at most `limit` bytes, which calls it `name`.

        The worker itself is asked first, then others in an order of this node's own that nobody can stand at the head
        of. None waits for long for the one before it: whoever stalls holds nobody up.
        """
        holders = [url for url in self.holders(commitment) if url not in but]
        asking: set[asyncio.Task[tuple[str, bytes | Manifest] | None]] = set()
        try:
            while holders or asking:
                if holders:
                    asking.add(asyncio.create_task(self._offer_of(holders.pop(0), commitment, name, limit)))
                patience = self.patience_seconds if holders else None
                done, asking = await asyncio.wait(asking, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if given := next((found for task in done if (found := task.result())), None):
                    return given
            return None
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def receive(self, commitment: Digest, manifest: Manifest) -> bytes | None:
        """The file's bytes as `manifest` has them, from whoever has such chunks; None where they were not to be had, or
        came so slowly that another holder's word is worth more.

        What has come stays on disk, to go on from, and is handed on to others that fetch it. Raises: StoreError.
        """
        store = await asyncio.to_thread(CheckpointStore, self._place(commitment))
        member = self.member
        await asyncio.to_thread(store.remember, manifest)
        pace = replace(member.downloader.pace, parallel=CHUNKS_AT_ONCE, patience_seconds=self.chunk_seconds)
        holders = partial(self.holders, commitment)
        me = partial(url_of, member.record, member.account)  # who fetches at the same time shares the work
        fetching = Downloader(store, member.connections, holders, self.selection, member.clock, pace, me=me)
        try:
            with (
                member.shelves.holding(store),
                Progress("fetching a file", "bytes", member.clock, resumes=True, commitment=commitment) as progress,
            ):
                async with asyncio.timeout(self.least_seconds + manifest.size / self.least_bytes_per_second):
                    folder = await fetching.fetch(manifest.root, progress)
                return await asyncio.to_thread((folder / manifest.files[0].name).read_bytes)
        except (NotFound, OSError):  # TimeoutError is one
            return None

    def holders(self, commitment: Digest) -> list[str]:
        """Who may hold the file and is not banned, the worker first."""
        member = self.member
        node = member.record.submissions[commitment].made.node
        announced = self.selection.of_nodes(announced_holders(member.record, node, member.account))
        holders = [url for url in announced if url not in member.bans]
        self.rng.shuffle(holders)
        return sorted(holders, key=lambda url: url != url_of(member.record, node))

    def blame(self, url: str, reason: str, commitment: Digest) -> None:
        """Bans it, and the node that announced it, which is said once."""
        self.selection.ban(url, f"file {commitment.hex()}: {reason}")

    def forget(self, commitment: Digest) -> None:
        """Deletes what has come of the file. Blocking."""
        shutil.rmtree(self._place(commitment), ignore_errors=True)

    def begun(self) -> Sequence[Digest]:
        """Files of which something may have come. Blocking."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return ()
        return [
            Digest(bytes.fromhex(name)) for name in names if len(name) == 64 and set(name) <= set("0123456789abcdef")
        ]

    async def _offer_of(
        self, url: str, commitment: Digest, name: str, limit: int
    ) -> tuple[str, bytes | Manifest] | None:
        peers = self.member.peers
        try:
            async with asyncio.timeout(self.share_seconds):
                data = await peers.submission_manifest(url, commitment)
                try:
                    manifest = await asyncio.to_thread(_only_file, data, name, limit)
                except Malformed as error:
                    self.blame(url, str(error), commitment)
                    return None
                if manifest.chunks > 1:
                    return url, manifest
                return url, await peers.submission(url, commitment, manifest.size)
        except (NotFound, Malformed, TimeoutError):  # what it answers with a status is no lie
            return None

    def _place(self, commitment: Digest) -> Path:
        return self.folder / commitment.hex()


def _only_file(data: bytes, name: str, limit: int) -> Manifest:
    """Raises: Malformed: it is no manifest of one file, of this name and of at most `limit` bytes."""
    manifest = Manifest.parse(data)
    if [(file.name, file.size <= limit) for file in manifest.files] != [(name, True)] or manifest.tensors:
        raise Malformed(f"a manifest of anything but a file of at most {limit} bytes")
    return manifest
