"""Files cut in chunks and copied in one pass."""

import random
from pathlib import Path

import pytest
from blake3 import blake3

from node.errors import StoreError
from node.shards.cutting import cut


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 8000, 123_456])
def test_chunks_are_hashed_in_order_and_the_copy_is_the_file(size: int, tmp_path: Path) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    seen: list[int] = []

    digests = cut(tmp_path / "file", 1000, seen.append, tmp_path / "copy")

    assert digests == [blake3(data[start : start + 1000]).digest() for start in range(0, size, 1000)]
    assert (tmp_path / "copy").read_bytes() == data
    assert seen == [min(start + 1000, size) for start in range(0, size, 1000)]


def test_a_file_that_becomes_shorter_is_an_error_and_no_wrong_digest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))

    def cut_off(_: int) -> None:
        path.write_bytes(b"")

    with pytest.raises(StoreError, match="became shorter while it was read"):
        for _ in range(100):  # its threads may be ahead of what is told
            cut(path, 100, cut_off)
            path.write_bytes(bytes(100_000))


def test_nothing_is_written_over_when_the_copy_exists(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"new")
    (tmp_path / "copy").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        cut(tmp_path / "file", 100, lambda _: None, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"old"
