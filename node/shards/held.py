"""What one process knows of a store's folder: which checkpoints are there, and which whole ones it has hashed.

Whoever changes the folder, or what is known of it, holds `changing`. A whole checkpoint is hashed without it: at 60 GB
that takes a minute, in which others go on.
"""

import logging
import threading

from blake3 import blake3

from ledger.base import Digest
from node.errors import NotFound
from node.shards.holding import Holding, Place
from node.shards.intact import hashes_agree, sizes_agree, stamps
from node.shards.layout import CHECKPOINTS, Layout
from node.shards.partial import read_place

log = logging.getLogger(__name__)


class Held:
    """Reading it needs no lock. Raises OSError where nothing else is said."""

    def __init__(self, layout: Layout) -> None:
        self.changing = threading.RLock()
        self._hashing = threading.Lock()  # one checkpoint at a time; taken before `changing`, never while holding it
        self._layout = layout
        self._holdings: dict[Digest, Holding] = {}  # replaced, never changed
        self._intact: frozenset[Digest] = frozenset()  # whole ones whose every byte was hashed
        for root in layout.roots(CHECKPOINTS):
            self._adopt(root)

    def get(self, root: Digest) -> Holding:
        """Raises: NotFound."""
        holding = self._holdings.get(root)
        if holding is None:
            raise NotFound(f"checkpoint {root.hex()} is not here")
        return holding

    def locate(self, digest: bytes) -> Place | None:
        """Of a verified chunk of any checkpoint, which was hashed."""
        return next((place for each in self._holdings.values() if (place := each.locate(digest)) is not None), None)

    def find(self, digest: bytes) -> Place | None:
        """Of a verified chunk of any checkpoint, hashed or not."""
        return next((place for each in self._holdings.values() if (place := each.find(digest)) is not None), None)

    def vouch(self, digest: bytes) -> Place | None:
        """As `locate`, after a chunk that an earlier process left was hashed; its checkpoint is removed if it is wrong.
        Raises: OSError."""
        for holding in self._holdings.values():
            for number in holding.numbers(digest):
                if not holding.hashed[number]:
                    self._hash_chunk(holding, number, digest)
        return self.locate(digest)

    def _hash_chunk(self, holding: Holding, number: int, digest: bytes) -> None:
        try:
            holding.hashed[number] = blake3(read_place(holding.place(number))).digest() == digest
        except FileNotFoundError:  # another store has evicted it
            return
        if not holding.hashed[number]:
            with self.changing:
                if self._holdings.get(holding.root) is holding:
                    self._discard(holding.root)

    def is_intact(self, root: Digest) -> bool:
        """Whether every byte of it was hashed, and nothing since made that doubtful."""
        return root in self._intact

    def hashed(self, holding: Holding) -> bool:
        """Whether every byte of a whole checkpoint is what it should be, hashed unless it was; it is removed if not.

        False as well where it was replaced or evicted meanwhile: nothing is known of what is there now.
        """
        with self._hashing:
            if self.is_intact(holding.root):
                return True
            before = stamps(holding)
            agree = hashes_agree(holding)
            with self.changing:
                if self._holdings.get(holding.root) is not holding or stamps(holding) != before:
                    return False
                if agree:
                    self._intact |= {holding.root}
                    holding.hashed[:] = bytes([True]) * len(holding.hashed)
                else:
                    self._discard(holding.root)
                return agree

    def doubt(self, root: Digest) -> None:
        """Its bytes are hashed again before it counts as intact: all of them from now on."""
        with self._hashing, self.changing:
            self._intact -= {root}

    # --- Holding `changing`

    def present(self, root: Digest) -> Holding | None:
        """The holding of `root` whose folder is still there; another store may have published or evicted it."""
        holding = self._holdings.get(root)
        if holding is not None and holding.folder.is_dir():
            return holding
        self._holdings = {other: each for other, each in self._holdings.items() if other != root}
        return self._adopt(root)

    def look_again(self) -> None:
        """At all of them, as `present`."""
        for root in tuple(self._holdings):
            self.present(root)

    def put(self, holding: Holding, *, intact: bool = False) -> Holding:
        self._holdings = {**self._holdings, holding.root: holding}
        self._intact = self._intact | {holding.root} if intact else self._intact - {holding.root}
        return holding

    def forget(self, root: Digest) -> None:
        self._holdings = {other: holding for other, holding in self._holdings.items() if other != root}
        self._intact -= {root}

    def _adopt(self, root: Digest) -> Holding | None:
        """A whole checkpoint that stands in the folder, published by an earlier process or another store."""
        folder = self._layout.whole(root)
        if not folder.is_dir():
            return None
        manifest = self._layout.load_manifest(root)
        if manifest is None or not sizes_agree(folder, manifest):
            self._discard(root)
            return None
        return self.put(Holding(root, manifest, folder, whole=True, found=True))

    def _discard(self, root: Digest) -> None:
        folder = self._layout.whole(root)
        log.warning("checkpoint %s is damaged and removed; it is fetched again when needed", folder)
        self.forget(root)
        self._layout.remove(folder)
