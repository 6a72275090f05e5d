"""Which versions of the model a node has, which it is to have, and which are of use to it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from ledger.base import Digest, Version
from node.errors import NodeError, NotFound, SpecMismatch
from node.log import warn
from node.record import Record
from node.shards.store import CheckpointStore


@dataclass(slots=True)
class Versions:
    """Those that the chain's record lists, as far as they are in `checkpoints`. What looks at the disk may raise
    StoreError."""

    record: Record
    checkpoints: CheckpointStore
    wanted: set[Version] = field(default_factory=set)  # to be fetched beside the newest one
    refused: dict[Version, SpecMismatch] = field(default_factory=dict)  # never to be used here, and why

    def held(self, version: Version) -> Path | None:
        """The folder of `version`, if its every chunk is here."""
        root = self.record.root(version)
        return None if root is None else self.checkpoints.complete(root)

    def require_intact(self, version: Version) -> None:
        """Raises: NotFound: what is wrong with the weights was this disk's doing; they are removed."""
        root = self.record.root(version)
        if root is not None and self.held(version) is not None and not self.checkpoints.recheck(root):
            raise NotFound(f"version {version} had changed on this disk and was removed")

    def refuse(self, version: Version, why: NodeError) -> SpecMismatch:
        """Has `version` passed over from now on, which is said once; the error to raise."""
        if version not in self.refused:
            self.refused[version] = SpecMismatch(f"version {version} is of no use here: {why}")
            warn("weights refused, going on with other versions", version=version, reason=why)
        return self.refused[version]

    def missing(self) -> list[Version]:
        """To fetch, the most useful first."""
        return [version for version in self.useful() if version not in self.refused and self.held(version) is None]

    def useful(self) -> list[Version]:
        """Those newer than what is here, the newest first, and then those that are wanted."""
        return [*self._newer(), *sorted(self.wanted)]

    def newest_held(self) -> Version | None:
        """The newest open version whose weights are here, and of use."""
        return next(filter(self._usable, self._open()), None)

    def has_other(self, version: Version) -> bool:
        """Whether there is another open version that may be of use, here or elsewhere."""
        return any(other != version and other not in self.refused for other in self._open())

    def to_start_with(self) -> list[Version]:
        """Any of which will do for tokenizer and template: those here, the newest first; then others."""
        published = [version for version in self._published() if version not in self.refused]
        here = [version for version in published if self.held(version) is not None]
        return list(dict.fromkeys([*here, *published[:1], *published[-1:]]))

    def roots_to_keep(self, newest: int) -> tuple[set[Digest], list[Digest]]:
        """Of the `newest` versions, version 0, those that are wanted, and what work goes on with; and which of these
        can go where room is short, the oldest first."""
        newest_first = list(self._published())[:newest]
        in_use = self.newest_held()
        kept = {Version(0), *newest_first, *self.wanted, *(() if in_use is None else (in_use,))}
        needed = {*newest_first[:1], *self.wanted, in_use}
        spare = sorted(kept - needed, key=lambda version: (version == 0, version))
        return set(self._roots(kept)), self._roots(spare)

    def _roots(self, versions: Iterable[Version]) -> list[Digest]:
        return [root for version in versions if (root := self.record.root(version)) is not None]

    def _newer(self) -> Iterator[Version]:
        """The latest version, and before it those that work could go on with, down to one that is here."""
        for version in self._published():
            if version != self.record.latest and not self.record.is_open(version):
                return
            yield version
            if self._usable(version):
                return

    def _published(self) -> Iterator[Version]:
        """Every version, the newest first."""
        return map(Version, reversed(range(len(self.record.checkpoints))))

    def _open(self) -> Iterator[Version]:
        return takewhile(self.record.is_open, self._published())

    def _usable(self, version: Version) -> bool:
        return version not in self.refused and self.held(version) is not None
