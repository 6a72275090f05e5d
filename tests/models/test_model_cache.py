"""The cache: built once, whole or not at all, by one process at a time."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from node.errors import StoreError
from node.models.cache import cached, folder_digest

DIGESTS = {"a": hashlib.sha256(b"one").hexdigest(), "b": hashlib.sha256(b"two").hexdigest()}


def good(folder: Path) -> None:
    (folder / "a").write_bytes(b"one")
    (folder / "b").write_bytes(b"two")


def quiet(_line: str) -> None:
    return None


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_it_is_built_once_and_named_by_the_digest_of_its_digests(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        good(folder)

    folders = {cached(tmp_path / "cache", "thing", DIGESTS, build, quiet) for _ in range(3)}

    lines = f"a {DIGESTS['a']}\nb {DIGESTS['b']}\n"
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert (folder_digest(DIGESTS), len(builds)) == (digest, 1)
    assert folders == {tmp_path / "cache" / f"thing-{digest[:16]}"}


def test_a_build_with_other_bytes_is_refused_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        good(folder)
        (folder / "b").write_bytes(b"tow")

    with pytest.raises(StoreError, match="pinned for b"):
        cached(tmp_path, "thing", DIGESTS, build, quiet)

    assert visible(tmp_path) == []


def test_a_build_that_dies_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        good(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path, "thing", DIGESTS, build, quiet)

    assert visible(tmp_path) == []


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    done = cached(tmp_path, "thing", DIGESTS, good, quiet)
    leftover = tmp_path / f".{done.name}.abc.partial"
    leftover.mkdir()
    (leftover / "a").write_bytes(b"half")
    (done / "a").write_bytes(b"damaged")

    cached(tmp_path, "thing", DIGESTS, good, quiet)

    assert visible(tmp_path) == [done.name]


def test_a_damaged_folder_is_built_again_and_said_so(tmp_path: Path) -> None:
    folder = cached(tmp_path, "thing", DIGESTS, good, quiet)
    (folder / "a").write_bytes(b"damaged")
    lines: list[str] = []

    cached(tmp_path, "thing", DIGESTS, good, lines.append)

    assert (folder / "a").read_bytes() == b"one"
    assert any("damaged" in line for line in lines)


def test_a_second_builder_waits_for_the_first_and_takes_its_result(tmp_path: Path) -> None:
    builds: list[Path] = []
    both = threading.Barrier(2)

    def build(folder: Path) -> None:
        builds.append(folder)
        good(folder)

    def ask() -> Path:
        both.wait()
        return cached(tmp_path, "thing", DIGESTS, build, quiet)

    with ThreadPoolExecutor(2) as pool:
        folders = [future.result() for future in [pool.submit(ask), pool.submit(ask)]]

    assert (len(builds), folders[0]) == (1, folders[1])


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError):
        cached(tmp_path / "file" / "cache", "thing", DIGESTS, good, quiet)
