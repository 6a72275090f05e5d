"""Folders that appear whole or not at all, whenever the process is killed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node.files import disk_refused, sync

PARTIAL = ".partial-"  # never looked at by a reader; what a kill leaves behind is removed by the next writer


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes `target` when the block ends without an error.

    All is synced before the rename. A `target` that exists is replaced: for an instant there is none, never a mixture.
    One writer per target at a time.

    Raises: StoreError: the disk failed.
    """
    partial, replaced = target.parent / f"{PARTIAL}{target.name}", target.parent / f"{PARTIAL}old-{target.name}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial, replaced)
        partial.mkdir()
        yield partial
        for path in (*partial.iterdir(), partial):
            sync(path)
        if target.exists():
            target.rename(replaced)
        partial.rename(target)
        sync(target.parent)
        _remove(replaced)
    except OSError as error:
        raise disk_refused(target, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def discard(folder: Path) -> None:
    """Deletes `folder` so that a kill on the way leaves nothing that looks whole."""
    renamed = folder.parent / f"{PARTIAL}old-{folder.name}"
    folder.rename(renamed)
    shutil.rmtree(renamed)


def remove_partial(parent: Path) -> None:
    """Deletes what kills have left in `parent`, which has one writer at a time."""
    _remove(*parent.glob(f"{PARTIAL}*"))


def _remove(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)
