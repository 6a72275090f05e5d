"""Which chunks of a checkpoint somebody has: one bit a chunk, as nodes tell each other. Nothing here is believed.

Chunk n is bit n % 8, the least significant first, of byte n // 8; bits beyond the last chunk are 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def packed(verified: Sequence[int]) -> bytes:
    """The bitmap of the chunks that are not 0 in `verified`, shape (chunks,), each below 256."""
    return np.packbits(np.frombuffer(bytes(verified), np.uint8), bitorder="little").tobytes()


def has(bitmap: bytes, number: int) -> bool:
    """Whether chunk `number` is in it; not where it is shorter."""
    return number // 8 < len(bitmap) and bool(bitmap[number // 8] >> number % 8 & 1)


def unpacked(bitmap: bytes, chunks: int) -> NDArray[np.uint8]:
    """0 or 1 for each chunk, shape (chunks,): 0 where the bitmap is shorter."""
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=chunks, bitorder="little")


def is_whole(bitmap: bytes, chunks: int) -> bool:
    """Whether it is exactly that of all chunks: one with bits beyond them, or of another length, says nothing."""
    return bitmap == packed(b"\x01" * chunks)
