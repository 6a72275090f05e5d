"""Patches between checkpoints: made, read again, applied one after the other; tampered with, and refused."""

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.errors import Malformed, NotFound
from node.shards.patch_applying import Link, WrongPatch
from node.shards.patch_file import Patch
from node.shards.patch_making import make_patch
from node.shards.patch_sides import Side
from node.shards.patch_words import compress
from tests.shards.versions import links, made, news, patch, side, versions, weights

SMALL = 5000  # words
HEAD = 76


def test_a_patch_makes_the_later_version_of_the_earlier_one(tmp_path: Path) -> None:
    base, target = versions(tmp_path, 2)

    found = patch(base, target, tmp_path / "patch")

    assert (found.base, found.target) == (base.manifest.root, target.manifest.root)
    assert list(found.places) == [1, 2]  # not `config`, which is chunk 0
    assert made(base, [Link(found, target.manifest)]) == news(base, target)
    assert found.path.stat().st_size < target.manifest.size / 50


def test_a_chain_makes_the_last_version_of_the_first_one_when_only_that_is_here(tmp_path: Path) -> None:
    sides = versions(tmp_path, 9, SMALL)
    chain = links(sides, tmp_path)
    for between in sides[1:-1]:
        (between.folder / "weights").unlink()

    assert made(sides[0], chain) == news(sides[0], sides[-1])


def test_files_that_come_go_and_change_their_length_are_carried(tmp_path: Path) -> None:
    first = side(tmp_path / "0", going=b"g" * 999, longer=b"abc", other=b"x" * 500, stays=b"s" * 100)
    second = side(tmp_path / "1", coming=b"c" * 999, longer=b"abcdef", stays=b"s" * 100)
    third = side(tmp_path / "2", coming=b"c" * 998 + b"d", going=b"g" * 999, longer=b"abcdeF", stays=b"s" * 100)

    found = made(first, links([first, second, third], tmp_path))

    assert found == {**news(first, third), (1, 0): b"g" * 999}  # gone for a while


def test_a_version_that_went_back_to_old_weights_is_made_too(tmp_path: Path) -> None:
    first, second = versions(tmp_path, 2, SMALL)

    found = made(first, links([first, second, first], tmp_path))

    assert found == {(1, 0): (first.folder / "weights").read_bytes()}


def test_no_patch_is_made_when_it_would_be_too_large(tmp_path: Path) -> None:
    base, target = versions(tmp_path, 2, SMALL)
    size = make_patch(base, target, tmp_path / "fits", 1 << 20, 1)
    assert size is not None

    assert make_patch(base, target, tmp_path / "exact", size, 1) == size
    assert make_patch(base, target, tmp_path / "less", size - 1, 1) is None


@pytest.mark.parametrize("which", [0, 1])
def test_no_patch_is_made_of_what_has_changed_on_this_disk(tmp_path: Path, which: int) -> None:
    sides = versions(tmp_path, 2, SMALL)
    path = sides[which].folder / "weights"
    path.write_bytes(weights(SMALL, seed=7))

    with pytest.raises(NotFound, match="has changed on this disk"):
        make_patch(sides[0], sides[1], tmp_path / "patch", 1 << 20, 1)


def test_a_base_that_has_changed_on_this_disk_is_no_fault_of_the_patch(tmp_path: Path) -> None:
    sides = versions(tmp_path, 2, SMALL)
    chain = links(sides, tmp_path)
    (sides[0].folder / "weights").write_bytes(weights(SMALL, seed=7))

    with pytest.raises(NotFound, match="has changed on this disk"):
        made(sides[0], chain)


@pytest.mark.parametrize("what", ["v0", "0.patch"])
def test_what_was_evicted_meanwhile_is_not_found(tmp_path: Path, what: str) -> None:
    sides = versions(tmp_path, 2, SMALL)
    chain = links(sides, tmp_path)
    (tmp_path / what / "weights" if what == "v0" else tmp_path / what).unlink()

    with pytest.raises(NotFound, match="evicted"):
        made(sides[0], chain)


# --- Hostile ones


def tampered(path: Path, offset: int, data: bytes, chunks: int = 2) -> Patch:
    whole = bytearray(path.read_bytes())
    whole[offset : offset + len(data)] = data
    path.write_bytes(whole)
    return Patch.read(path, chunks)


def test_the_file_is_that_of_the_protocol(tmp_path: Path) -> None:
    base = side(tmp_path / "0", a=bytes.fromhex("803f003f"), b=b"same")
    target = side(tmp_path / "1", a=bytes.fromhex("803f013f"), b=b"same", c=b"new")
    data = patch(base, target, tmp_path / "patch").path.read_bytes()

    frames = [compress(b"\0"), compress(b"\x01"), compress(b"\0")]
    changed = struct.pack("<IIBIII", 0, 1, 126, *map(len, frames)) + b"".join(frames)
    whole = struct.pack("<IIBIII", 2, 0, 0, len(compress(b"new")), 0, 0) + compress(b"new")
    assert data == b"in/patch/1\0\0" + base.manifest.root + target.manifest.root + changed + whole


def test_a_patch_that_breaks_off_anywhere_is_refused_or_found_to_lack_a_chunk(tmp_path: Path) -> None:
    base = side(tmp_path / "0", a=weights(100, 1), b=weights(100, 2))
    target = side(tmp_path / "1", a=weights(100, 3), b=weights(100, 4))
    whole = patch(base, target, tmp_path / "patch").path.read_bytes()
    short = tmp_path / "short"
    for length in range(0, len(whole), 5):
        short.write_bytes(whole[:length])
        with pytest.raises(Malformed):
            made(base, [Link(Patch.read(short, target.manifest.chunks), target.manifest)])


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Side, Side, bytes]:
    """Two small versions, and the bytes of the patch between them."""
    base, target = versions(tmp_path, 2, 300)
    return base, target, patch(base, target, tmp_path / "right").path.read_bytes()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_patch_with_a_wrong_byte_never_gives_a_wrong_version(
    tmp_path: Path, pair: tuple[Side, Side, bytes], data: st.DataObject
) -> None:
    base, target, whole = pair
    place = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / "wrong"
    path.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    try:
        found = made(base, [Link(Patch.read(path, target.manifest.chunks), target.manifest)])
    except Malformed:
        return
    assert found == news(base, target)  # a bit of a zstd frame that says nothing


def test_a_patch_of_other_versions_than_asked_for_is_wrong(tmp_path: Path) -> None:
    sides = versions(tmp_path, 3, SMALL)
    chain = links(sides, tmp_path)

    for wrong in (
        [Link(chain[1].patch, sides[2].manifest)],
        [Link(chain[0].patch, sides[2].manifest)],
        [chain[1], chain[0]],
    ):
        with pytest.raises(WrongPatch, match="is from") as caught:
            made(sides[0], wrong)
        assert caught.value.place == 0


def test_the_patch_that_is_wrong_is_named_when_it_is_one_of_a_chain(tmp_path: Path) -> None:
    sides = versions(tmp_path, 4, SMALL)
    chain = links(sides, tmp_path)
    other = patch(sides[1], sides[3], tmp_path / "other")
    chain[1] = Link(tampered(other.path, 44, sides[2].manifest.root), sides[2].manifest)  # says that it makes 2

    with pytest.raises(WrongPatch, match="makes a wrong chunk 1") as caught:
        made(sides[0], chain)

    assert caught.value.place == 1


def test_a_patch_without_a_chunk_that_changed_is_wrong(tmp_path: Path) -> None:
    sides = versions(tmp_path, 2, SMALL)
    path = links(sides, tmp_path)[0].patch.path
    path.write_bytes(path.read_bytes()[:HEAD])

    with pytest.raises(WrongPatch, match="lacks chunk 1"):
        made(sides[0], [Link(Patch.read(path, 2), sides[1].manifest)])


def test_a_patch_of_a_chunk_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    sides = versions(tmp_path, 2, SMALL)
    path = links(sides, tmp_path)[0].patch.path

    with pytest.raises(WrongPatch, match="has chunk 2 of 2"):
        made(sides[0], [Link(tampered(path, HEAD, (2).to_bytes(4, "little"), chunks=3), sides[1].manifest)])


def test_no_more_records_are_read_than_the_target_has_chunks(tmp_path: Path) -> None:
    records = [struct.pack("<IIBIII", number, 0, 0, 1, 0, 0) + b"x" for number in range(200_000)]
    (tmp_path / "patch").write_bytes(b"in/patch/1\0\0" + bytes(64) + b"".join(records))

    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="has chunk 3 of 3"):
            Patch.read(tmp_path / "patch", 3)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (struct.pack("<IIBIII", 0, 1, 0, 1, 1, 0), "frames of"),
        (struct.pack("<IIBIII", 0, 1, 0, 0, 1, 1), "frames of"),
        (struct.pack("<IIBIII", 0, 0, 0, 1, 1, 1), "frames of"),
        (struct.pack("<IIBIII", 0, 0, 0, 0, 0, 0), "frames of"),
        (struct.pack("<IIBIII", 0, 0, 1, 1, 0, 0), "frames of"),
        (struct.pack("<IIBIII", 0, 1, 0, 2**32 - 1, 1, 1), "frames of"),
        (struct.pack("<IIBIII", 0, 2**20 + 1, 0, 1, 1, 1), "changes 1048577 words of a chunk, at most 1048576"),
        (struct.pack("<IIBIII", 0, 2**32 - 1, 0, 1, 1, 1), "at most 1048576"),
        (struct.pack("<IIBIII", 0, 1, 0, 1, 1, 2), "breaks off in a frame"),
        (struct.pack("<IIBIII", 0, 0, 0, 1, 0, 0) + b"x" + struct.pack("<IIBIII", 0, 0, 0, 1, 0, 0), "0 after chunk 0"),
    ],
)
def test_heads_of_records_that_cannot_be_are_refused(tmp_path: Path, record: bytes, why: str) -> None:
    (tmp_path / "patch").write_bytes(b"in/patch/1\0\0" + bytes(64) + record + b"xxx")

    with pytest.raises(Malformed, match=why):
        Patch.read(tmp_path / "patch", 2)


@pytest.mark.parametrize("data", [b"", b"in/patch/1\0\0", b"in/patch/2\0\0" + bytes(64)])
def test_what_is_no_patch_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "patch").write_bytes(data)

    with pytest.raises(Malformed, match="not a patch"):
        Patch.read(tmp_path / "patch", 2)


def test_a_wrong_record_is_found_when_the_last_version_has_no_such_chunk(tmp_path: Path) -> None:
    first = side(tmp_path / "0", a=weights(50, 1), b=weights(50, 2))
    second = side(tmp_path / "1", a=weights(50, 1), b=weights(50, 3))
    third = side(tmp_path / "2", a=weights(50, 4))
    chain = links([first, second, third], tmp_path)
    path = chain[0].patch.path
    wrong = compress(weights(50, 5))
    path.write_bytes(path.read_bytes()[:HEAD] + struct.pack("<IIBIII", 1, 0, 0, len(wrong), 0, 0) + wrong)

    with pytest.raises(WrongPatch, match="makes a wrong chunk 1") as caught:
        made(first, [Link(Patch.read(path, second.manifest.chunks), second.manifest), chain[1]])
    assert caught.value.place == 0
