"""Where a node's chunks can be: several stores, which come and go, and single files that lie anywhere."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from ledger.base import Digest
from node.errors import NotFound
from node.shards.holding import Holding, Place
from node.shards.intact import require_stamp, stamps, why_wrong
from node.shards.layout import disk
from node.shards.manifest import Manifest, of_bytes
from node.shards.store import Listener

MAX_SINGLES = 1024  # files whose chunks are known; the longest unasked is forgotten first

T = TypeVar("T")


class Shelf(Protocol):
    """What is served of a `CheckpointStore`, or of anything that has chunks.

    `vouch` says where a chunk lies, after hashing what an earlier process left, has changed, or was hashed long ago;
    where the file that it named has gone, `relocate` looks what others have done to the disk. Both and `manifest_path`
    block on it, and raise StoreError.
    """

    def manifest_path(self, root: Digest) -> Path: ...
    def have(self, root: Digest) -> bytes: ...
    def vouch(self, digest: bytes) -> Place | None: ...
    def relocate(self, digest: bytes) -> Place | None: ...
    def subscribe(self, listener: Listener) -> None: ...
    def unsubscribe(self, listener: Listener) -> None: ...


class Shelves:
    """Several as one, asked in their order. For one event loop, but what the shelves announce may come from any
    thread."""

    def __init__(self, *shelves: Shelf) -> None:
        self._shelves = shelves
        self._listeners: tuple[Listener, ...] = ()

    def put(self, shelf: Shelf) -> None:
        self._shelves = (*self._shelves, shelf)
        for listener in self._listeners:
            shelf.subscribe(listener)

    @contextmanager
    def holding(self, shelf: Shelf) -> Iterator[None]:
        """Has `shelf` among them while the block runs."""
        self.put(shelf)
        try:
            yield
        finally:
            self._shelves = tuple(each for each in self._shelves if each is not shelf)
            for listener in self._listeners:
                shelf.unsubscribe(listener)

    def manifest_path(self, root: Digest) -> Path:
        """Raises: NotFound."""
        return self._first(lambda shelf: shelf.manifest_path(root), root)

    def have(self, root: Digest) -> bytes:
        """Raises: NotFound."""
        return self._first(lambda shelf: shelf.have(root), root)

    def vouch(self, digest: bytes) -> Place | None:
        return next((place for shelf in self._shelves if (place := shelf.vouch(digest)) is not None), None)

    def relocate(self, digest: bytes) -> Place | None:
        return next((place for shelf in self._shelves if (place := shelf.relocate(digest)) is not None), None)

    def subscribe(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)
        for shelf in self._shelves:
            shelf.subscribe(listener)

    def unsubscribe(self, listener: Listener) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)
        for shelf in self._shelves:
            shelf.unsubscribe(listener)

    def _first(self, ask: Callable[[Shelf], T], root: Digest) -> T:
        for shelf in self._shelves:
            try:
                return ask(shelf)
            except NotFound:
                continue
        raise NotFound(f"{root.hex()} is not here")


class Singles:
    """Whole files that lie where they are and are handed out by chunks, each under a manifest of its own.

    Such a manifest is had from whoever knows the file by another name, not by its root.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, most: int = MAX_SINGLES) -> None:
        """Knows `most` files at once."""
        self._now, self._most = now, most
        self._files: OrderedDict[Path, Holding] = OrderedDict()
        self._roots: dict[Digest, Holding] = {}
        self._chunks: dict[bytes, Holding] = {}
        self._changing = threading.Lock()

    def known(self, path: Path) -> Manifest | None:
        """Of a file that was added, where it is the same since, and no chunk of it was found wrong."""
        holding = self._files.get(path)
        return holding.manifest if holding is not None and _is_same(holding) else None

    def add(self, path: Path, data: bytes) -> Manifest:
        """The manifest of `data`, which are to be the bytes at `path`: the only file in it, by its own name. What lies
        there is hashed when it is handed out. Blocking.

        Raises: OSError: it cannot be looked at.
        """
        holding = self._files.get(path)
        if holding is None or not _is_same(holding):
            manifest = of_bytes(path.name, data)
            holding = Holding(manifest.root, manifest, path.parent, whole=True, found=True, now=self._now)
            holding.stamps = [require_stamp(path)]
        with self._changing:
            self._files[path] = holding
            self._files.move_to_end(path)
            self._roots[holding.root] = holding
            self._chunks.update(dict.fromkeys(holding.digests(), holding))
            if len(self._files) > self._most:
                self._drop(next(iter(self._files)))
        return holding.manifest

    def manifest_path(self, root: Digest) -> Path:
        """Raises: NotFound."""
        raise NotFound(f"the manifest {root.hex()} is not here")

    def have(self, root: Digest) -> bytes:
        """Raises: NotFound."""
        holding = self._roots.get(root)
        if holding is None:
            raise NotFound(f"{root.hex()} is not here")
        return holding.bitmap()

    def vouch(self, digest: bytes) -> Place | None:
        """Hashes the chunk, unless it was lately; a file that has been deleted, or has changed, is forgotten. Blocking.

        Raises: StoreError.
        """
        holding = self._chunks.get(digest)
        if holding is None:
            return None
        with disk(f"cannot read {holding.path(0)}"):
            if _is_right(holding, digest):
                return holding.place(holding.numbers(digest)[0])
        with self._changing:
            self._drop(holding.path(0))
        return None

    def relocate(self, digest: bytes) -> Place | None:
        """As `vouch`."""
        return self.vouch(digest)

    def subscribe(self, listener: Listener) -> None:
        """Nothing that somebody waits for arrives here."""

    def unsubscribe(self, listener: Listener) -> None:
        """As `subscribe`."""

    def _drop(self, path: Path) -> None:
        holding = self._files.pop(path, None)
        if holding is None:
            return
        if self._roots.get(holding.root) is holding:
            del self._roots[holding.root]
        for digest in set(holding.digests()):
            if self._chunks.get(digest) is holding:
                del self._chunks[digest]


def _is_same(holding: Holding) -> bool:
    """Whether its file is what was there when it was added."""
    return stamps(holding) == holding.stamps


def _is_right(holding: Holding, digest: bytes) -> bool:
    """Whether its file is the same since, and has that chunk: hashed now, unless it was lately."""
    try:
        return _is_same(holding) and why_wrong(holding, holding.numbers(digest)[0], digest) is None
    except FileNotFoundError:
        return False
