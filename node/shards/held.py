"""What one process knows of a store's folder: which checkpoints are there, and which whole ones it has hashed.

Whoever changes the folder, or what is known of it, holds `changing`. A whole checkpoint is hashed without it: at 60 GB
that takes a minute, in which others go on.
"""

import logging
import threading
import time
from collections.abc import Callable

from ledger.base import Digest
from node.errors import NotFound
from node.shards.holding import TICK_NS, Holding, Place
from node.shards.intact import is_intact, locate, sizes_agree, stamps, why_wrong
from node.shards.layout import CHECKPOINTS, Layout

log = logging.getLogger(__name__)


class Held:
    """Reading it needs no lock. Raises OSError where nothing else is said."""

    def __init__(self, layout: Layout, now: Callable[[], float] = time.monotonic, tick_ns: int = TICK_NS) -> None:
        self.changing = threading.RLock()
        self._hashing = threading.Lock()  # one checkpoint at a time; taken before `changing`, never while holding it
        self._layout, self._now, self._tick_ns = layout, now, tick_ns
        self._holdings: dict[Digest, Holding] = {}  # replaced, never changed
        for root in layout.roots(CHECKPOINTS):
            self._adopt(root)

    def get(self, root: Digest) -> Holding:
        """Raises: NotFound."""
        holding = self._holdings.get(root)
        if holding is None:
            raise NotFound(f"checkpoint {root.hex()} is not here")
        return holding

    def locate(self, digest: bytes) -> Place | None:
        """Of a verified chunk of any checkpoint, which was hashed lately, and whose file is the same since."""
        return next((place for each in self._holdings.values() if (place := locate(each, digest)) is not None), None)

    def vouch(self, digest: bytes) -> Place | None:
        """As `locate`; where that finds nothing, of the first that is right, hashed now: an earlier process left it,
        its file has changed, or it was hashed long ago. What is wrong is given up. Raises: OSError."""
        while (place := self.locate(digest)) is None:
            before = self._holdings
            for holding in before.values():
                for number in holding.numbers(digest):
                    if holding.verified[number] and self._is_right(holding, number, digest):
                        return holding.place(number)
            if self._holdings is before:
                return None
        return place

    def _is_right(self, holding: Holding, number: int, digest: bytes) -> bool:
        """Hashes a chunk, unless it was lately and its file is the same."""
        try:
            why = why_wrong(holding, number, digest)
        except FileNotFoundError:  # another store has published or evicted it
            with self.changing:
                self.present(holding.root)
            return False
        if why is not None:
            with self.changing:
                if self._holdings.get(holding.root) is holding:
                    self._give_up(holding, number, why)
        return why is None

    def hashed(self, holding: Holding) -> bool:
        """Whether every byte of a checkpoint whose chunks are all here is what it should be, hashed unless it was and
        its file is the same; what is wrong is given up.

        False as well where it was replaced or evicted meanwhile: nothing is known of what is there now.
        """
        if is_intact(holding):
            return True
        with self._hashing:
            before = stamps(holding)
            wrong = _first_wrong(holding)
            with self.changing:
                if self._holdings.get(holding.root) is not holding or stamps(holding) != before:
                    return False
                if wrong is not None:
                    self._give_up(holding, *wrong)
                return wrong is None

    def doubt(self, root: Digest) -> None:
        """Its bytes are hashed again before it counts as intact: all of them from now on."""
        holding = self._holdings.get(root)
        if holding is not None:
            with self._hashing, holding.writing:
                for file in range(len(holding.manifest.files)):
                    holding.doubt(file)

    def whole(self, root: Digest) -> Holding | None:
        """Whose every chunk is here: among the whole ones or, the last one just come, not yet."""
        with self.changing:
            holding = self.present(root)
            return holding if holding is not None and holding.whole else None

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

    def put(self, holding: Holding) -> Holding:
        self._holdings = {**self._holdings, holding.root: holding}
        return holding

    def forget(self, root: Digest) -> None:
        self._holdings = {other: holding for other, holding in self._holdings.items() if other != root}

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
            self._discard(root, "a file is missing or has another size")
            return None
        return self.put(Holding(root, manifest, folder, whole=True, found=True, now=self._now, tick_ns=self._tick_ns))

    def _give_up(self, holding: Holding, number: int, why: str) -> None:
        """A whole checkpoint goes; what is being received is begun anew, with all that is right of it."""
        if holding.folder == self._layout.whole(holding.root):
            self._discard(holding.root, f"{holding.place(number)[0].name}: {why}")
        else:
            log.warning("a chunk in %s is damaged and fetched again: %s", holding.place(number)[0], why)
            self.forget(holding.root)

    def _discard(self, root: Digest, why: str) -> None:
        folder = self._layout.whole(root)
        log.warning(
            "checkpoint %s is damaged and removed (%s); it is fetched again when needed. If that comes again, check "
            "the disk, or name another --home",
            folder,
            why,
        )
        self.forget(root)
        self._layout.remove(folder)


def _first_wrong(holding: Holding) -> tuple[int, str] | None:
    """The number of the first chunk that is not right, and why."""
    for number, digest in enumerate(holding.digests()):
        try:
            why = why_wrong(holding, number, digest)
        except FileNotFoundError:
            why = "it has gone"
        if why is not None:
            return number, why
    return None
