"""What a download asks for: missing chunks, requests under way, and the pace of it all."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from node.shards.bitmaps import has
from node.shards.manifest import Manifest
from node.transport.receiving import Arriving


@dataclass(frozen=True, slots=True)
class Pace:
    """`wait_seconds` is how long one source may hold a request back when it is the only one, else `brief`.

    Without a single new chunk for `patience_seconds` a download ends. A chunk in flight for `late_seconds` is asked
    for a second time elsewhere, once nothing else is left to ask for; a request that takes a source so much longer than
    it took before is given up where there is another one (`Exchange.overdue`). A manifest has `manifest_seconds` to
    come whole. Until the first chunk has come, `begin_seconds` pass before each further request.
    """

    parallel: int = 4
    wait_seconds: int = 30
    brief_wait_seconds: int = 2
    patience_seconds: float = 120.0
    poll_seconds: float = 0.1
    watch_seconds: float = 0.5
    late_seconds: float = 3.0
    manifest_seconds: float = 8.0
    begin_seconds: float = 0.25


class Kind(Enum):
    """Why a chunk is asked for."""

    OWN = "this node's part of what only whole sources have"
    OFFERED = "somebody has it who receives at the same time"
    AWAITED = "another's part"
    UNSEEN = "nobody is known to have it yet, or there is one source"
    LATE = "it is in flight for long"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A missing chunk by its first place; the checkpoint has it in one place or several, `bytes_in_all` together."""

    number: int
    file: int
    chunk: int
    digest: bytes
    length: int
    bytes_in_all: int


@dataclass(slots=True, eq=False)
class Flight:
    """One request for a chunk."""

    wanted: Wanted
    source: str
    wait_seconds: int
    kind: Kind
    since: float
    end: asyncio.Timeout | None = None  # while something may still come
    arriving: Arriving = field(default_factory=Arriving)

    @property
    def number(self) -> int:
        return self.wanted.number

    def give_up(self) -> None:
        """What is receiving it, under the time limit `end`, times out now."""
        if self.end is not None and not self.end.expired():
            self.end.reschedule(asyncio.get_running_loop().time())


def missing_of(manifest: Manifest, have: bytes) -> list[Wanted]:
    """What the bitmap `have` lacks, ascending; of equal chunks the first."""
    first: dict[bytes, tuple[int, int, int, int]] = {}
    in_all: dict[bytes, int] = {}
    number = -1
    for index, file in enumerate(manifest.files):
        for chunk, digest in enumerate(file.chunks):
            number += 1
            if not has(have, number):
                first.setdefault(digest, (number, index, chunk, file.length(chunk)))
                in_all[digest] = in_all.get(digest, 0) + file.length(chunk)
    return [
        Wanted(n, index, chunk, digest, length, in_all[digest]) for digest, (n, index, chunk, length) in first.items()
    ]
