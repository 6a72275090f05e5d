"""Chunks against chunks: what goes into a patch comes out of it, and what was tampered with does not."""

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import Malformed
from node.shards.patch_words import Packed, compress, decompress, pack, unpack


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "little") for value in values)


def frame(*values: int) -> bytes:
    return compress(bytes(values))


def contents(packed: Packed) -> list[list[int]]:
    return [list(zstandard.ZstdDecompressor().decompress(each)) for each in packed.frames if each]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two chunks of one length, any patterns at all: NaNs, infinities, zeros of either sign, an odd last byte."""
    base = draw(st.binary(min_size=1, max_size=600))
    target = bytearray(base)
    for place in draw(st.lists(st.integers(0, len(base) - 1), max_size=40)):
        target[place] = draw(st.integers(0, 255))
    return base, bytes(target)


@settings(deadline=None)  # the first example compiles
@given(pairs())
def test_the_target_comes_out_whatever_the_patterns_are(pair: tuple[bytes, bytes]) -> None:
    base, target = pair

    assert unpack(pack(base, target), base, len(target)) == target


@settings(deadline=None)  # the first example compiles
@given(st.binary(min_size=1, max_size=100))
def test_the_target_comes_out_when_there_is_no_base(target: bytes) -> None:
    packed = pack(None, target)

    assert packed.count == 0
    assert unpack(packed, None, len(target)) == target


def test_few_changes_of_many_weights_come_out_when_they_are_of_a_whole_chunk() -> None:
    rng = np.random.default_rng(1)
    base = (rng.standard_normal(2 << 20).astype(np.float32).view(np.uint32) >> 16).astype("<u2")
    target = base.copy()
    target[rng.integers(0, len(base), 20_000)] ^= 1

    packed = pack(base.tobytes(), target.tobytes())

    assert unpack(packed, base.tobytes(), 4 << 20) == target.tobytes()
    assert sum(map(len, packed.frames)) < 45_000  # by Shannon 9 bits for where each is, of as many, and a sign


def test_the_bytes_are_those_of_the_protocol_when_worked_out_by_hand() -> None:
    """1.0 is 0x3F80, exponent 127; 0.5 is 0x3F00, exponent 126; -0.25 is 0xBE80, exponent 125."""
    base = words(0x3F80, 0x3F00, 0x3F00, 0xBE80, 0x3F00, 0x3F80)
    target = words(0x3F80, 0x3F00, 0x3F01, 0xBE7E, 0x3F00, 0x3F80)

    packed = pack(base, target)

    assert (packed.count, packed.top) == (2, 126)
    # listed up to exponent 126: word 3, then words 1, 2, 4; places 0 and 2 change, by -2 and by 1
    assert contents(packed) == [[0, 1], [0xFE, 0x01], [0xFF, 0x00]]


def test_a_gap_of_255_and_more_goes_on_in_the_next_byte() -> None:
    base = words(*[0x3F80] * 2000)
    changed = [0, 255, 256 + 255, 767 + 510]  # gaps: 0, 254, 255, 765
    target = bytearray(base)
    for place in changed:
        target[2 * place] ^= 1

    packed = pack(base, bytes(target))

    assert contents(packed)[0] == [0, 254, 255, 0, 255, 255, 255, 0]
    assert unpack(packed, base, len(base)) == target


def test_a_chunk_of_which_most_words_change_is_carried_whole() -> None:
    assert pack(words(1, 2, 3, 4), words(1, 3, 4, 4)).count == 2
    assert pack(words(1, 2, 3, 4), words(1, 3, 4, 5)).count == 0


BASE = words(0x3F80, 0x3F80, 0x3F80, 0x3F80)
ONE = frame(1)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (Packed(1, 127, (frame(4), ONE, frame(0))), "changes word 4 of 4"),
        (Packed(1, 126, (frame(0), ONE, frame(0))), "changes word 0 of 0"),
        (Packed(3, 127, (frame(0, 0, 0), frame(1, 1, 1), frame(0, 0, 0))), "changes 3 of 4 words"),
        (Packed(2, 127, (frame(0), frame(1, 1), frame(0, 0))), "a frame of 1 bytes where 2 to 2 can be"),
        (Packed(1, 127, (frame(0, 0), ONE, frame(0))), "a frame of 2 bytes where 1 to 1 can be"),
        (Packed(1, 127, (frame(255), ONE, frame(0))), "0 gaps for 1 changes"),
        (Packed(1, 127, (frame(0), frame(1, 1), frame(0))), "a frame of 2 bytes where 1 to 1 can be"),
        (Packed(1, 127, (frame(0), frame(0), frame(0))), "a change of nothing"),
        (Packed(1, 127, (b"not zstd", ONE, frame(0))), "what is no zstd frame"),
        (Packed(1, 127, (frame(0)[:-1], ONE, frame(0))), "what is no zstd frame"),
        (Packed(1, 127, (frame(0) + b"\0", ONE, frame(0))), "what is no zstd frame"),
        (Packed(1, 127, (frame(0) + frame(0), ONE, frame(0))), "what is no zstd frame"),
        (Packed(0, 0, (frame(1, 2, 3), b"", b"")), "a frame of 3 bytes where 8 to 8 can be"),
    ],
)
def test_what_cannot_be_a_patch_of_the_chunk_is_refused(packed: Packed, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        unpack(packed, BASE, len(BASE))


@pytest.mark.parametrize("base", [None, words(1, 2, 3)])
def test_changes_of_a_chunk_that_the_base_does_not_have_are_refused(base: bytes | None) -> None:
    with pytest.raises(Malformed, match="does not have"):
        unpack(Packed(1, 255, (frame(0), ONE, frame(0))), base, 8)


def test_more_gaps_than_changes_are_refused_when_the_list_has_room_for_them() -> None:
    base = words(*[0x3F80] * 1000)

    with pytest.raises(Malformed, match="2 gaps for 1 changes"):
        unpack(Packed(1, 127, (frame(0, 0), ONE, frame(0))), base, len(base))


def test_a_bomb_is_refused_before_anything_is_allocated() -> None:
    bomb = compress(bytes(1 << 28))

    assert len(bomb) < 10_000
    with pytest.raises(Malformed, match="268435456 bytes where 1 to 8"):
        decompress(bomb, 1, 8)


def test_a_frame_that_announces_less_than_it_holds_is_refused() -> None:
    honest = compress(b"x" * 300)
    lying = honest[:5] + b"\0\0" + honest[7:]  # the two bytes of its content's size, less 256

    assert zstandard.frame_content_size(lying) == 256
    with pytest.raises(Malformed, match="no zstd frame"):
        decompress(lying, 1, 300)


def test_a_frame_that_does_not_say_how_long_it_is_is_refused() -> None:
    stream = zstandard.ZstdCompressor().compressobj()

    with pytest.raises(Malformed, match="a frame of -1 bytes"):
        decompress(stream.compress(b"abc") + stream.flush(), 1, 3)


@settings(deadline=None)  # the first example compiles
@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 9), st.integers(0, 255))
def test_garbage_is_refused_or_gives_a_chunk(gaps: bytes, low: bytes, high: bytes, count: int, top: int) -> None:
    streams = tuple(compress(each) for each in (gaps, low, high))
    try:
        made = unpack(Packed(count, top, (streams[0], streams[1], streams[2])), BASE, len(BASE))
    except Malformed:
        return
    assert len(made) == len(BASE)
