"""Which chunks somebody has, as one bit each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.shards.bitmaps import has, is_whole, packed, unpacked

SOME = [1, 0, 0, 0, 0, 0, 1, 0, 0, 1]  # chunks 0 and 6: 1 and 64 of the first byte; chunk 9: 2 of the next


def test_the_first_chunk_is_the_lowest_bit_of_the_first_byte() -> None:
    assert packed(SOME) == bytes([1 + 64, 2])
    assert [has(bytes([65, 2]), number) for number in range(10)] == [bool(each) for each in SOME]
    assert unpacked(bytes([65, 2]), 10).tolist() == SOME


def test_chunks_beyond_a_bitmap_are_not_in_it_and_bits_beyond_the_chunks_are_none() -> None:
    assert not has(b"\xff", 8)
    assert unpacked(b"\xff", 10).tolist() == [1] * 8 + [0, 0]
    assert unpacked(b"\xff\xff", 3).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("bitmap", "chunks", "whole"),
    [
        (b"\xff\x03", 10, True),
        (b"\xff", 8, True),
        (b"\xff\x01", 10, False),
        (b"\xff", 10, False),
        (b"\xff\x07", 10, False),  # of a chunk that there is not
        (b"\xff\x80\x01", 10, False),  # as many bits, and not those
        (b"\xff\x03\x00", 10, False),
        (b"", 1, False),
    ],
)
def test_a_bitmap_is_whole_when_it_has_all_chunks_and_nothing_else(bitmap: bytes, chunks: int, whole: bool) -> None:
    assert is_whole(bitmap, chunks) is whole


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=100))
def test_what_is_packed_is_what_is_had(verified: list[bool]) -> None:
    bitmap = packed(verified)
    assert len(bitmap) == (len(verified) + 7) // 8
    assert [has(bitmap, number) for number in range(len(verified))] == verified
    assert unpacked(bitmap, len(verified)).tolist() == verified
    assert int.from_bytes(bitmap, "little") == sum(2**number for number, each in enumerate(verified) if each)
