"""Reads the one GGUF file this project converts: version 3, tensors in F32, Q4_1 and Q8_0.

The file's digest is checked before it comes here, so this parser is small; what it does not know it refuses.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and ggml-quants.c for the blocks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from node.errors import Malformed

MAGIC, VERSION = b"GGUF", 3
ALIGNMENT = 32  # the format's default; the file sets no other
BLOCK = 32  # values in a block of Q4_1 and Q8_0

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK_BYTES = {_Q4_1: 2 + 2 + BLOCK // 2, _Q8_0: 2 + BLOCK}


@dataclass(frozen=True, slots=True)
class Gguf:
    """Metadata by key, and where each tensor lies: name -> (shape, type, offset in `data`)."""

    metadata: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]
    data: bytes

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The named tensor dequantised to float32, in row-major shape."""
        shape, kind, offset = self.tensors[name]
        count = int(np.prod(shape))
        if kind == _F32:
            return np.frombuffer(self.data, "<f4", count, offset).reshape(shape)
        blocks = np.frombuffer(self.data, np.uint8, count // BLOCK * _BLOCK_BYTES[kind], offset)
        decode = _q4_1 if kind == _Q4_1 else _q8_0
        return decode(blocks.reshape(-1, _BLOCK_BYTES[kind])).reshape(shape)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        size = self.scalar("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            item, size = self.scalar("I"), self.scalar("Q")
            return [self.value(item) for _ in range(size)]
        return self.scalar(_SCALARS[kind])


def parse_gguf(data: bytes) -> Gguf:
    """The file's metadata and tensor table.

    Raises:
        Malformed: not such a file.
    """
    reader = _Reader(data)
    if data[:4] != MAGIC or int.from_bytes(data[4:8], "little") != VERSION:
        raise Malformed("not a GGUF file of version 3")
    reader.at = 8
    try:
        n_tensors, n_keys = reader.scalar("Q"), reader.scalar("Q")
        metadata = {reader.text(): reader.value(reader.scalar("I")) for _ in range(n_keys)}
        table = [_tensor_info(reader) for _ in range(n_tensors)]
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise Malformed(f"GGUF header: {error}") from error
    start = -(-reader.at // ALIGNMENT) * ALIGNMENT
    return Gguf(metadata, {name: (shape, kind, start + offset) for name, shape, kind, offset in table}, data)


def _tensor_info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.text()
    sizes = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
    kind = reader.scalar("I")
    if kind not in (_F32, _Q4_1, _Q8_0):
        raise Malformed(f"GGUF tensor {name} has type {kind}, which is not converted here")
    return name, tuple(reversed(sizes)), kind, reader.scalar("Q")  # GGUF counts the fastest dimension first


def _q4_1(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    least = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    values: npt.NDArray[np.float32] = scale * quants + least
    return values


def _q8_0(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
