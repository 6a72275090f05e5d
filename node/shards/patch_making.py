"""Making a patch: what a later checkpoint has that an earlier one does not, chunk against chunk at the same place."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from node.shards.patch_file import HEAD, record_bytes, write_head, write_record
from node.shards.patch_sides import Key, Side
from node.shards.patch_words import Packed, pack


def make_patch(
    base: Side, target: Side, path: Path, most_bytes: int, threads: int, stop: threading.Event | None = None
) -> int | None:
    """Writes the patch from `base` to `target` to `path`; its bytes, or None where it would have over `most_bytes`, or
    `stop` was set meanwhile.

    `threads` read, compare and compress beside each other; memory: some 20 MB each.

    Raises: NotFound: a side is not whole any more. OSError.
    """
    size = HEAD.size
    with path.open("wb") as file, ThreadPoolExecutor(threads, thread_name_prefix="patch") as pool:
        write_head(file, base.manifest.root, target.manifest.root)
        for chunk, packed in _records(pool, base, target, 2 * threads):
            size += record_bytes(packed)
            if size > most_bytes or (stop is not None and stop.is_set()):
                return None
            write_record(file, chunk, packed)
    return size


def _records(pool: ThreadPoolExecutor, base: Side, target: Side, ahead: int) -> Iterator[tuple[int, Packed]]:
    """By number in the target, at most `ahead` of them under way."""
    under_way: deque[tuple[int, Future[Packed]]] = deque()
    for key, spot in target.spots.items():
        before = base.spots.get(key)
        if before is not None and before.digest == spot.digest:
            continue
        under_way.append((spot.number, pool.submit(_record, base, target, key)))
        if len(under_way) >= ahead:
            number, packed = under_way.popleft()
            yield number, packed.result()
    for number, packed in under_way:
        yield number, packed.result()


def _record(base: Side, target: Side, key: Key) -> Packed:
    before = base.spots.get(key)
    comparable = before is not None and before.length == target.spots[key].length
    return pack(base.read(key) if comparable else None, target.read(key))
