"""The bytes of rollout files: the protocol's worked example, and files that lie."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.merkle import leaf_hash
from node.errors import Malformed
from node.rollouts.file import decode_file, decode_preimage, encode_file, file_root, preimage, size_limit, split_file
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec

Rollouts = tuple[Rollout, ...]

# Offsets in the first leaf of the worked example: 3 prompt tokens, 3 output tokens, one proof.
HEAD = 13
PROMPT = HEAD + 4
OUTPUT = PROMPT + 12 + 4
LOGPROBS = OUTPUT + 12 + 4
PROOFS = LOGPROBS + 12 + 4
FINISH = PROOFS + 258
REWARD = FINISH + 1


def framed(leaves: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(leaf)) + leaf for leaf in leaves)


def patched(leaf: bytes, at: int, new: bytes) -> bytes:
    return leaf[:at] + new + leaf[at + len(new) :]


def test_leaves_and_file_are_the_protocols_when_encoded(vectors: dict[str, Any], rollouts: Rollouts) -> None:
    expected = vectors["expected"]

    leaves = [preimage(rollout, row, 6) for row, rollout in enumerate(rollouts)]
    data = encode_file(rollouts)

    assert [len(leaf) for leaf in leaves] == expected["leaf_preimage_lengths"]
    assert ["0x" + keccak(leaf).hex() for leaf in leaves] == expected["leaves"]
    assert len(data) == expected["file_bytes_length"]
    assert "0x" + keccak(data).hex() == expected["file_keccak"]


def test_first_leaf_is_laid_out_as_written_down_by_hand(rollouts: Rollouts) -> None:
    by_hand = (
        "00" "00000000" "06000000" "0000" "0000"
        "0c000000" "010000000200000003000000"
        "0c000000" "0a0000000b00000002000000"
        "0c000000" "000000bf" "0000a0bf" "000000be"
        "02010000" + "ab" * 258 + "00" "0000803f"
    )  # fmt: skip

    assert preimage(rollouts[0], 0, 6).hex() == by_hand


def test_size_limit_is_the_protocols(vectors: dict[str, Any], spec: RunSpec) -> None:
    assert size_limit(spec) == vectors["expected"]["size_limit"]


def test_hashes_of_leaves_and_their_root_are_the_protocols_when_read_from_a_file(
    vectors: dict[str, Any], spec: RunSpec, rollouts: Rollouts
) -> None:
    data = encode_file(rollouts)

    hashes = [leaf_hash(leaf) for leaf in split_file(data, size_limit(spec))]

    assert ["0x" + leaf.hex() for leaf in hashes] == vectors["expected"]["leaves"]
    assert "0x" + file_root(data, size_limit(spec)).hex() == vectors["expected"]["root"]


def test_a_file_reads_back_with_float32_values(spec: RunSpec, rollouts: Rollouts) -> None:
    read = decode_file(encode_file(rollouts), spec)

    assert [(r.group, r.index, r.prompt_ids, r.output_ids, r.proofs, r.finish) for r in read] == [
        (r.group, r.index, r.prompt_ids, r.output_ids, r.proofs, r.finish) for r in rollouts
    ]
    assert read[2].reward == 0.3333333432674408  # the float32 nearest to a third
    assert read[3].reward == 0.10000000149011612
    assert read[0].logprobs == (-0.5, -1.25, -0.125)


def test_a_file_of_the_longest_rows_is_within_the_size_limit(spec: RunSpec) -> None:
    rows = tuple(
        Rollout(row // 2, row % 2, (7,) * 8, (5,) * 40, (-1.0,) * 40, (bytes(258),) * 2, 1, 1.0) for row in range(6)
    )
    data = encode_file(rows)

    assert decode_file(data, spec) == rows
    assert split_file(data, len(data)) == tuple(preimage(r, i, 6) for i, r in enumerate(rows))
    with pytest.raises(Malformed, match=f"file of {len(data)} bytes: this run's files have at most {len(data) - 1}"):
        split_file(data, len(data) - 1)


def test_a_file_over_the_size_limit_is_refused_before_it_is_read(spec: RunSpec) -> None:
    with pytest.raises(Malformed, match="file of 5593 bytes: this run's files have at most 5592"):
        decode_file(bytes(5593), spec)


# --- Writing


def test_negative_zero_and_what_rounds_to_it_are_written_as_positive_zero(rollouts: Rollouts) -> None:
    leaf = preimage(replace(rollouts[0], logprobs=(-0.0, -1e-50, -1.0), reward=-0.0), 0, 6)

    assert leaf[LOGPROBS : LOGPROBS + 8] == bytes(8)
    assert leaf[REWARD:] == bytes(4)


def test_floats_round_to_nearest_even_when_written(rollouts: Rollouts) -> None:
    halfway = 1 + 2**-24  # between 0x3f800000 and 0x3f800001
    above = 1 + 3 * 2**-24  # between 0x3f800001 and 0x3f800002

    leaf = preimage(replace(rollouts[0], logprobs=(halfway, above, -1.0)), 0, 6)

    assert struct.unpack_from("<II", leaf, LOGPROBS) == (0x3F800000, 0x3F800002)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_ids": (2**32,)},
        {"output_ids": (-1, 2, 3)},
        {"group": 2**16},
        {"index": -1},
        {"finish": 256},
        {"proofs": (bytes(257),)},
    ],
)
def test_what_does_not_fit_its_field_is_not_encoded(rollouts: Rollouts, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="row 0"):
        preimage(replace(rollouts[0], **change), 0, 6)


def test_what_only_checks_can_judge_is_encoded(rollouts: Rollouts) -> None:
    leaf = preimage(replace(rollouts[0], logprobs=(float("nan"), 1e300), proofs=(), finish=9), 0, 6)

    assert len(leaf) == 13 + 16 + 16 + (4 + 8) + 4 + 5


# --- Reading what lies


def test_every_truncation_of_a_file_is_refused(spec: RunSpec, rollouts: Rollouts) -> None:
    data = encode_file(rollouts)

    for length in range(len(data)):
        with pytest.raises(Malformed):
            decode_file(data[:length], spec)


def test_every_truncation_of_a_leaf_is_refused(spec: RunSpec, rollouts: Rollouts) -> None:
    leaf = preimage(rollouts[2], 2, 6)

    for length in range(len(leaf)):
        with pytest.raises(Malformed):
            decode_preimage(leaf[:length], spec)


@pytest.mark.parametrize("length", [0, 33, 329, 2514, 2**31, 2**32 - 1])
def test_a_lying_length_of_a_leaf_is_refused(spec: RunSpec, rollouts: Rollouts, length: int) -> None:
    data = struct.pack("<I", length) + encode_file(rollouts)[4:]

    with pytest.raises(Malformed):
        decode_file(data, spec)


@pytest.mark.parametrize("offset", [PROMPT - 4, OUTPUT - 4, LOGPROBS - 4, PROOFS - 4])
@pytest.mark.parametrize("length", [0, 1, 4, 13, 16, 257, 259, 516, 2**31, 2**32 - 1])
def test_a_lying_length_of_a_list_is_refused(spec: RunSpec, rollouts: Rollouts, offset: int, length: int) -> None:
    leaf = preimage(rollouts[0], 0, 6)

    with pytest.raises(Malformed, match="row 0, "):
        decode_preimage(patched(leaf, offset, struct.pack("<I", length)), spec)


BIG_NAN, SIGNALLING_NAN, INFINITY, NEGATIVE_ZERO = 0x7FC00000, 0x7F800001, 0xFF800000, 0x80000000


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (0, b"\x01", "row 0, tag: 0x01 is not a leaf's"),
        (1, struct.pack("<I", 6), "row 6, row: of only 6"),
        (1, struct.pack("<I", 2**32 - 1), "row 4294967295, row: of only 6"),
        (1, struct.pack("<I", 1), r"row 1, group: \(0, 0\), but groups have 2 rows"),
        (5, struct.pack("<I", 7), "row 0, rows: 7, this run has 6"),
        (9, struct.pack("<H", 1), r"row 0, group: \(1, 0\)"),
        (11, struct.pack("<H", 1), r"row 0, group: \(0, 1\)"),
        (FINISH, b"\x02", "row 0, finish: 2 is neither 0 nor 1"),
        (LOGPROBS + 4, struct.pack("<I", BIG_NAN), "row 0, logprobs: not finite"),
        (LOGPROBS, struct.pack("<I", SIGNALLING_NAN), "row 0, logprobs: not finite"),
        (LOGPROBS, struct.pack("<I", INFINITY), "row 0, logprobs: not finite"),
        (LOGPROBS + 8, struct.pack("<I", NEGATIVE_ZERO), "row 0, logprobs: -0"),
        (REWARD, struct.pack("<I", BIG_NAN), "row 0, reward: not finite"),
        (REWARD, struct.pack("<I", INFINITY), "row 0, reward: not finite"),
        (REWARD, struct.pack("<I", NEGATIVE_ZERO), "row 0, reward: -0"),
    ],
)
def test_a_wrong_value_is_refused_by_row_and_field(
    spec: RunSpec, rollouts: Rollouts, at: int, new: bytes, message: str
) -> None:
    leaf = patched(preimage(rollouts[0], 0, 6), at, new)

    with pytest.raises(Malformed, match=message):
        decode_preimage(leaf, spec)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_ids": (1,) * 9}, "prompt_ids: 9 entries, at most 8"),
        ({"output_ids": (), "logprobs": (), "proofs": ()}, "output_ids: no tokens"),
        ({"output_ids": (1,) * 41, "logprobs": (-1.0,) * 41}, "output_ids: 41 entries, at most 40"),
        ({"logprobs": (-1.0,) * 2}, "logprobs: 2 entries, must be 3"),
        ({"proofs": ()}, "proofs: 0 entries, must be 1"),
        ({"proofs": (bytes(258),) * 2}, "proofs: 2 entries, must be 1"),
    ],
)
def test_a_list_of_the_wrong_size_is_refused(
    spec: RunSpec, rollouts: Rollouts, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(Malformed, match=f"row 0, {message}"):
        decode_preimage(preimage(replace(rollouts[0], **change), 0, 6), spec)


def test_bytes_left_over_in_a_leaf_are_refused(spec: RunSpec, rollouts: Rollouts) -> None:
    with pytest.raises(Malformed, match="row 0, end: 1 bytes left over"):
        decode_preimage(preimage(rollouts[0], 0, 6) + b"\x00", spec)


@pytest.mark.parametrize(
    ("disorder", "message"),
    [
        (lambda leaves: leaves[:5], "file holds 5 rows: this run's files have 6"),
        (lambda leaves: [*leaves, leaves[0]], "file holds 7 rows: this run's files have 6"),
        (lambda leaves: [leaves[1], leaves[0], *leaves[2:]], "row 0, row: the leaf says it is row 1"),
        (lambda leaves: [*leaves[:3], leaves[2], *leaves[4:]], "row 3, row: the leaf says it is row 2"),
        (lambda leaves: [], "file holds no rows"),
    ],
)
def test_rows_missing_repeated_or_out_of_order_are_refused(
    spec: RunSpec, rollouts: Rollouts, disorder: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    leaves = [preimage(rollout, row, 6) for row, rollout in enumerate(rollouts)]

    with pytest.raises(Malformed, match=message):
        decode_file(framed(disorder(leaves)), spec)


@pytest.mark.parametrize("extra", [b"\x00", bytes(3), bytes(4), b"\xff" * 4, b"\x22\x00\x00\x00"])
def test_bytes_left_over_in_a_file_are_refused(spec: RunSpec, rollouts: Rollouts, extra: bytes) -> None:
    with pytest.raises(Malformed, match="row 6, length"):
        decode_file(encode_file(rollouts) + extra, spec)


# --- Any bytes


def rows_of(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Rollout]:
    ids = st.integers(0, 2**32 - 1)

    @st.composite
    def build(draw: st.DrawFn) -> Rollout:
        tokens = draw(st.integers(1, 40))
        return Rollout(
            group=0,
            index=0,
            prompt_ids=tuple(draw(st.lists(ids, max_size=8))),
            output_ids=tuple(draw(st.lists(ids, min_size=tokens, max_size=tokens))),
            logprobs=tuple(draw(st.lists(floats, min_size=tokens, max_size=tokens))),
            proofs=tuple(draw(st.binary(min_size=258, max_size=258)) for _ in range(-(-tokens // 32))),
            finish=draw(st.integers(0, 1)),
            reward=draw(floats),
        )

    return build()


@settings(deadline=None, max_examples=30)
@given(st.lists(rows_of(st.floats(width=32, allow_nan=False, allow_infinity=False)), min_size=6, max_size=6))
def test_any_file_that_can_be_written_reads_back(spec: RunSpec, rows: list[Rollout]) -> None:
    placed = tuple(replace(row, group=i // 2, index=i % 2) for i, row in enumerate(rows))

    assert decode_file(encode_file(placed), spec) == placed


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=600))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(spec: RunSpec, data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_file(data, spec)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2513), st.integers(1, 255))
def test_a_file_with_one_byte_changed_reads_as_written_or_is_refused(
    spec: RunSpec, rollouts: Rollouts, at: int, flip: int
) -> None:
    data = bytearray(encode_file(rollouts))
    data[at] ^= flip
    try:
        read = decode_file(bytes(data), spec)
    except Malformed:
        return
    assert encode_file(read) == bytes(data)
