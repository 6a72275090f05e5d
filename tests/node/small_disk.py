"""A small file system in memory that can really be filled up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Disk:
    folder: Path

    @property
    def filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, leave: int = 0) -> None:
        """Leaves only about `leave` bytes."""
        with self.filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        if leave:
            os.truncate(self.filler, self.filler.stat().st_size - leave)

    def make_room(self) -> None:
        self.filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """8 MB of which all can be used up; where this user may not mount any, the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
