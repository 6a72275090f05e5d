"""The bytes of a rollout file: its leaves themselves, length-prefixed, without a container.

It writes and parses. What the values mean (tokens in the vocabulary, a finish that fits the tokens, the reward) is for
the checks. Every integer and float is little-endian. Source: protocol 1, "Rollout file".
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hashing import merkle
from hashing.encoding import PROOF_BYTES
from ledger.base import Digest
from node.errors import Malformed
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Rollout
from node.runspec import RunSpec

LEAF_TAG = 0x00  # inner nodes of the tree hash under 0x01
ROW_OVERHEAD_BYTES = 64  # what the size limit allows a row beside its lists: 38 are used
NEGATIVE_ZERO = 0x80000000

_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<BIIHH")  # tag, row, rows, group, index
_TAIL = struct.Struct("<BI")  # finish, the bits of the reward
MIN_LEAF_BYTES = _HEAD.size + 4 * _LENGTH.size + _TAIL.size


def chunks(output_tokens: int, spec: RunSpec) -> int:
    """Proofs of a rollout: one per started chunk of output tokens."""
    return -(-output_tokens // spec.proof.chunk)


def size_limit(spec: RunSpec) -> int:
    """The most bytes that a whole file of the run may have, inclusive."""
    sampling = spec.sampling
    tokens = 4 * sampling.max_prompt_tokens + 8 * sampling.max_output_tokens
    return spec.slot.rows * (tokens + PROOF_BYTES * chunks(sampling.max_output_tokens, spec) + ROW_OVERHEAD_BYTES)


# --- Writing


def preimage(rollout: Rollout, row: int, rows: int) -> bytes:
    """What leaf `row` hashes. -0 is written as +0, floats are rounded to float32 (nearest even).

    Raises:
        ValueError: a number does not fit its field, or a proof is not 258 bytes. Nothing else is judged.
    """
    if any(len(proof) != PROOF_BYTES for proof in rollout.proofs):
        raise ValueError(f"row {row}: a proof is not {PROOF_BYTES} bytes")
    try:
        return b"".join(
            (
                _HEAD.pack(LEAF_TAG, row, rows, rollout.group, rollout.index),
                _prefixed(struct.pack(f"<{len(rollout.prompt_ids)}I", *rollout.prompt_ids)),
                _prefixed(struct.pack(f"<{len(rollout.output_ids)}I", *rollout.output_ids)),
                _prefixed(_float_bytes(rollout.logprobs)),
                _prefixed(b"".join(rollout.proofs)),
                struct.pack("<B", rollout.finish),
                _float_bytes((rollout.reward,)),
            )
        )
    except struct.error as error:
        raise ValueError(f"row {row} cannot be encoded: {error}") from error


def encode_file(rollouts: Sequence[Rollout]) -> bytes:
    """The file of `rollouts`, in row order.

    Raises:
        ValueError: as `preimage`.
    """
    rows = len(rollouts)
    return b"".join(_prefixed(preimage(rollout, row, rows)) for row, rollout in enumerate(rollouts))


def _prefixed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _float_bytes(values: Sequence[float]) -> bytes:
    with np.errstate(over="ignore"):
        rounded = np.array(values, dtype=np.float64).astype("<f4")
    return (rounded + np.float32(0)).astype("<f4").tobytes()  # -0 + 0 = +0


# --- Reading


def split_file(data: bytes, limit: int) -> tuple[bytes, ...]:
    """The preimages in `data`, uninterpreted: enough for its leaves and root.

    Raises:
        Malformed: over `limit` bytes, empty, a length that lies, or bytes left over.
    """
    if len(data) > limit:
        raise Malformed(f"file of {len(data)} bytes: this run's files have at most {limit}")
    leaves: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        if start > len(data):
            raise Malformed(f"row {len(leaves)}, length: {len(data) - at} bytes left over at the end of the file")
        (length,) = _LENGTH.unpack_from(data, at)
        if length < MIN_LEAF_BYTES or length > len(data) - start:
            raise Malformed(
                f"row {len(leaves)}, length: {length} bytes, but a leaf has at least {MIN_LEAF_BYTES} "
                f"and {len(data) - start} follow"
            )
        at = start + length
        leaves.append(data[start:at])
    if not leaves:
        raise Malformed("file holds no rows")
    return tuple(leaves)


def file_root(data: bytes, limit: int) -> Digest:
    """Root of the tree over the file's leaves: what is committed on chain. Raises: Malformed, as `split_file`."""
    return Digest(merkle.root([merkle.leaf_hash(leaf) for leaf in split_file(data, limit)]))


def require_root(data: bytes, wanted: Digest, limit: int) -> None:
    """Raises: Malformed: the leaves of `data` do not hash to `wanted`."""
    if file_root(data, limit) != wanted:
        raise Malformed("the file's leaves do not hash to the committed root")


def decode_file(data: bytes, spec: RunSpec) -> tuple[Rollout, ...]:
    """All rollouts of a file, exactly as many and in the order that the run demands.

    Raises:
        Malformed: over the size limit, or anything that `split_file` and `decode_preimage` refuse, or rows missing,
            repeated or out of order. The message says row, field and why.
    """
    leaves = split_file(data, size_limit(spec))
    if len(leaves) != spec.slot.rows:
        raise Malformed(f"file holds {len(leaves)} rows: this run's files have {spec.slot.rows}")
    rollouts: list[Rollout] = []
    for position, leaf in enumerate(leaves):
        row, _, rollout = decode_preimage(leaf, spec)
        if row != position:
            raise Malformed(f"row {position}, row: the leaf says it is row {row}")
        rollouts.append(rollout)
    return tuple(rollouts)


def decode_preimage(data: bytes, spec: RunSpec) -> tuple[int, int, Rollout]:
    """(row, rows, rollout) of one leaf.

    Raises:
        Malformed: a wrong tag, rows, row, group or index; a list that is no whole number of entries, too long for the
            run, or of another length than output_ids demands; a float that is not finite, or -0; an unknown finish;
            bytes missing or left over.
    """
    cursor = _Cursor(data)
    row, rows, group, index = _head(cursor, spec)
    prompt_ids = cursor.entries("prompt_ids", 4, most=spec.sampling.max_prompt_tokens)
    output_ids = cursor.entries("output_ids", 4, most=spec.sampling.max_output_tokens)
    tokens = len(output_ids) // 4
    cursor.require(tokens > 0, "output_ids", "no tokens")
    logprobs = cursor.entries("logprobs", 4, exactly=tokens)
    proofs = cursor.entries("proofs", PROOF_BYTES, exactly=chunks(tokens, spec))
    finish, reward_bits = cursor.unpack(_TAIL, "finish and reward")
    cursor.require(finish in {FINISH_EOS, FINISH_LENGTH}, "finish", f"{finish} is neither 0 nor 1")
    cursor.require(cursor.at == len(data), "end", f"{len(data) - cursor.at} bytes left over")
    rollout = Rollout(
        group=group,
        index=index,
        prompt_ids=tuple(np.frombuffer(prompt_ids, dtype="<u4").tolist()),
        output_ids=tuple(np.frombuffer(output_ids, dtype="<u4").tolist()),
        logprobs=cursor.floats("logprobs", np.frombuffer(logprobs, dtype="<u4")),
        proofs=tuple(proofs[at : at + PROOF_BYTES] for at in range(0, len(proofs), PROOF_BYTES)),
        finish=finish,
        reward=cursor.floats("reward", np.array([reward_bits], dtype="<u4"))[0],
    )
    return row, rows, rollout


def _head(cursor: "_Cursor", spec: RunSpec) -> tuple[int, int, int, int]:
    tag, row, rows, group, index = cursor.unpack(_HEAD, "header")
    cursor.where = f"row {row}"
    cursor.require(tag == LEAF_TAG, "tag", f"{tag:#04x} is not a leaf's")
    cursor.require(rows == spec.slot.rows, "rows", f"{rows}, this run has {spec.slot.rows}")
    cursor.require(row < rows, "row", f"of only {rows}")
    size = spec.slot.group_size
    cursor.require((group, index) == divmod(row, size), "group", f"({group}, {index}), but groups have {size} rows")
    return row, rows, group, index


@dataclass(slots=True)
class _Cursor:
    """Takes fields off the front of a leaf, and says where it stumbled."""

    data: bytes
    at: int = 0
    where: str = "leaf"

    def require(self, condition: bool, field: str, why: str) -> None:
        if not condition:
            raise Malformed(f"{self.where}, {field}: {why}")

    def take(self, count: int, field: str) -> bytes:
        left = len(self.data) - self.at
        self.require(count <= left, field, f"{count} bytes announced, {left} follow")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, layout: struct.Struct, field: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, field))

    def entries(self, field: str, entry_bytes: int, *, most: int | None = None, exactly: int | None = None) -> bytes:
        """One list: its length in bytes is checked before anything is taken."""
        (length,) = self.unpack(_LENGTH, field)
        count, rest = divmod(length, entry_bytes)
        self.require(rest == 0, field, f"{length} bytes are no whole number of entries of {entry_bytes}")
        self.require(most is None or count <= most, field, f"{count} entries, at most {most}")
        self.require(exactly is None or count == exactly, field, f"{count} entries, must be {exactly}")
        return self.take(length, field)

    def floats(self, field: str, bits: npt.NDArray[np.uint32]) -> tuple[float, ...]:
        values = bits.view("<f4")
        self.require(bool(np.isfinite(values).all()), field, "not finite")
        self.require(not (bits == NEGATIVE_ZERO).any(), field, "-0, which is written +0")
        return tuple(values.tolist())
