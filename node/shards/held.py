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

    def vouch(self, digest: bytes) -> Place | None:
        """As `locate`; where that finds nothing, of the first that an earlier process left and that is right, hashed
        now. A checkpoint is removed where it is wrong. Raises: OSError."""
        if (place := self.locate(digest)) is not None:
            return place
        for holding in self._holdings.values():
            for number in holding.numbers(digest):
                if not holding.hashed[number] and self._is_right(holding, number, digest):
                    return holding.place(number)
        return None

    def _is_right(self, holding: Holding, number: int, digest: bytes) -> bool:
        """Hashes a chunk of a whole checkpoint, which is removed if it is not."""
        try:
            right = blake3(read_place(holding.place(number))).digest() == digest
        except FileNotFoundError:  # another store has evicted it
            return False
        holding.hashed[number] = right
        if not right:
            with self.changing:
                if self._holdings.get(holding.root) is holding:
                    self._discard(holding.root)
        return right

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
        self.forget(root)
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
            self._layout.make_way(folder)
            return None
        manifest = self._layout.load_manifest(root)
        if manifest is None:  # the bytes are not to blame: it counts again once the manifest has come
            return None
        if not sizes_agree(folder, manifest):
            self._discard(root)
            return None
        return self.put(Holding(root, manifest, folder, whole=True, found=True))

    def _discard(self, root: Digest) -> None:
        folder = self._layout.whole(root)
        log.warning("checkpoint %s is damaged and removed; it is fetched again when needed", folder)
        self.forget(root)
        self._layout.remove(folder)
