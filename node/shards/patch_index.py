"""The patches that this node vouches for: those that it made, and those that it applied and that made what they should.

A patch itself is a checkpoint of one file in the store, so that it travels like any other. Here lies only which one
makes what of what, in a file for each: its name is the roots of target and base, its content the root of the patch.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ledger.base import Digest
from node.files import write_atomically
from node.shards.layout import disk

STAGING = "making-"  # what a kill leaves of a patch that was being made


class Span(NamedTuple):
    """From one checkpoint to another, by their roots."""

    base: Digest
    target: Digest


class Expected:
    """The patches that somebody makes or fetches here: who asks for one waits."""

    def __init__(self, under_way: dict[Span, asyncio.Event]) -> None:
        self._under_way = under_way  # by all here
        self._mine: dict[Span, asyncio.Event] = {}

    def begin(self, span: Span) -> None:
        if span not in self._under_way:
            self._mine[span] = self._under_way[span] = asyncio.Event()

    def end(self, span: Span) -> None:
        """Whoever waits has an answer now."""
        if span in self._mine:
            del self._under_way[span]
            self._mine.pop(span).set()

    def end_all(self) -> None:
        for span in tuple(self._mine):
            self.end(span)


class PatchIndex:
    """Which patches are here. Looked at and waited for from one event loop; `put`, `keep` and `staged` block."""

    def __init__(self, folder: Path) -> None:
        """Opens or creates the index; one process has it at a time. Raises: StoreError."""
        self._folder = folder
        self._found: dict[Span, Digest] = {}
        self._under_way: dict[Span, asyncio.Event] = {}
        self._fetched: tuple[Digest, ...] = ()
        self._changing = threading.Lock()  # of what is replaced, never changed: readers need no lock
        with disk(f"cannot open the patches in {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                if path.name.startswith(STAGING):
                    shutil.rmtree(path)
                elif (entry := _entry(path)) is not None:
                    self._found[entry[0]] = entry[1]

    def find(self, span: Span) -> Digest | None:
        """The root of a patch that makes the span's target of its base."""
        return self._found.get(span)

    def put(self, span: Span, patch: Digest) -> None:
        """Vouches for `patch`, which is in the store. Raises: StoreError."""
        with self._changing:
            write_atomically(self._path(span), patch.hex().encode())
            self._found = {**self._found, span: patch}

    def drop(self, span: Span) -> None:
        """Vouches no more. Raises: StoreError."""
        with self._changing, disk("cannot forget a patch"):
            self._path(span).unlink(missing_ok=True)
            self._found = {other: patch for other, patch in self._found.items() if other != span}

    def keep(self, versions: Collection[Digest]) -> set[Digest]:
        """Forgets the patches that make none of `versions`; the roots of the others, and of those being fetched.

        Raises: StoreError.
        """
        for span in self._found:
            if span.target not in versions:
                self.drop(span)
        return {*self._found.values(), *self._fetched}

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """An empty folder for a patch that is being made, gone after the block. Raises: StoreError."""
        with disk("cannot make a patch"):
            folder = Path(tempfile.mkdtemp(prefix=STAGING, dir=self._folder))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def fetching(self, patch: Digest) -> Iterator[None]:
        """While the block runs, `patch` is not to be evicted."""
        with self._changing:
            self._fetched = (*self._fetched, patch)
        try:
            yield
        finally:
            with self._changing:
                place = self._fetched.index(patch)
                self._fetched = (*self._fetched[:place], *self._fetched[place + 1 :])

    # --- Waiting

    @contextmanager
    def expecting(self, spans: Iterable[Span] = ()) -> Iterator[Expected]:
        """While the block runs, whoever asks for one of these patches, or of those begun meanwhile, may wait for it.

        For who makes it, waits for its maker's answer, or fetches it: of nodes that wait for each other's question to
        be answered, all would wait until the last has had enough.
        """
        expected = Expected(self._under_way)
        try:
            for span in spans:
                expected.begin(span)
            yield expected
        finally:
            expected.end_all()

    async def wait_for(self, span: Span, seconds: float) -> Digest | None:
        """As `find`; where the patch is on its way, after `seconds` at the latest."""
        under_way = self._under_way.get(span)
        if span not in self._found and under_way is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(under_way.wait(), seconds)
        return self.find(span)

    def _path(self, span: Span) -> Path:
        return self._folder / f"{span.target.hex()}-{span.base.hex()}"


def _entry(path: Path) -> tuple[Span, Digest] | None:
    """None where the file is none of ours, or not whole."""
    named = re.fullmatch("([0-9a-f]{64})-([0-9a-f]{64})", path.name)
    if named is None or path.stat().st_size != 64 or not re.fullmatch(b"[0-9a-f]{64}", data := path.read_bytes()):
        return None
    target, base, patch = (Digest(bytes.fromhex(each)) for each in (named[1], named[2], data.decode()))
    return Span(base, target), patch
