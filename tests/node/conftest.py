"""Networks in one process, as the tests of roles have them; a disk that can be full."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.small_disk import Disk, small_disk
from tests.roles.conftest import base, build, spec, tasks

__all__ = ["base", "build", "spec", "tasks"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made
