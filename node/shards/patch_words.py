"""What changed between two chunks of the same length: which 16-bit words, and by how much. Packed and unpacked.

Training at a small learning rate moves few bfloat16 weights to another value of their grid, nearly all of them small
ones, whose grid is fine. So the words of the base are listed by their exponent, and places in that list are coded as
gaps, most of them a byte of little entropy; values are the differences of the patterns, most of them 1 or -1. Bytes of
one kind stand together, and each kind is a zstd frame (protocol, "Patches").

Letters: W words of a chunk, L of them listed, N changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import zstandard

from node.errors import Malformed

LEVEL = 3  # of zstd; on real weights 19 saves 4% at many times the time
ESCAPE = 255  # of a gap's bytes: 255 places further, and the gap goes on
EXPONENT_SHIFT, LAST_EXPONENT = 7, 255  # of bfloat16: a sign, eight bits of exponent, seven of mantissa

Words = npt.NDArray[np.uint16]
Indices = npt.NDArray[np.int64]
Frames = tuple[bytes, bytes, bytes]  # gaps, low bytes, high bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """What becomes of a chunk: `count` of its words change, none of which has an exponent above `top` in the base.

    Where `count` is 0, the first frame holds the whole chunk.
    """

    count: int
    top: int
    frames: Frames


def pack(base: bytes | None, target: bytes) -> Packed:
    """What makes `target` of `base`: another chunk of that length, or None where there is none to start from."""
    if base is not None:
        base_W, target_W = _words(base), _words(target)
        count = int(np.count_nonzero(base_W != target_W))
        if 0 < count <= len(base_W) // 2:
            return _pack(base_W, target_W, count)
    return Packed(0, 0, (compress(target), b"", b""))


def unpack(packed: Packed, base: bytes | None, length: int) -> bytes:
    """The chunk of `length` bytes.

    Raises: Malformed: it is not what makes one of `base`.
    """
    if not packed.count:
        return decompress(packed.frames[0], length, length)
    if base is None or len(base) != length:
        raise Malformed("changes a chunk that the base does not have")
    base_W = _words(base)
    if packed.count > len(base_W) // 2:  # before anything is made of so many
        raise Malformed(f"changes {packed.count} of {len(base_W)} words, which a whole chunk serves better")
    indices_N = _indices(base_W, packed)
    words_W = base_W.copy()
    words_W[indices_N] += _steps(packed)
    return words_W.tobytes()[:length]


def _pack(base_W: Words, target_W: Words, count: int) -> Packed:
    from node.shards.patch_kernel import changed_ranks  # brings numba

    indices_N, ranks_N, totals = changed_ranks(base_W, target_W, count)
    exponents_N = base_W[indices_N] >> EXPONENT_SHIFT & LAST_EXPONENT
    starts = np.cumsum(totals) - totals
    places_N = starts[exponents_N] + ranks_N
    order_N = np.argsort(places_N)
    indices_N = indices_N[order_N]
    halves = (target_W[indices_N] - base_W[indices_N]).astype("<u2").view(np.uint8)
    streams = (_gaps(places_N[order_N]), halves[0::2].tobytes(), halves[1::2].tobytes())
    gaps, low, high = (compress(stream) for stream in streams)
    return Packed(count, int(exponents_N.max()), (gaps, low, high))


def _indices(words_W: Words, packed: Packed) -> Indices:
    """Where the words are that change, in the list's order. Raises: Malformed."""
    from node.shards.patch_kernel import exponent_totals, ranked_indices  # brings numba

    totals = exponent_totals(words_W)
    totals[packed.top + 1 :] = 0
    starts = np.cumsum(totals) - totals
    places_N = _places(packed.frames[0], packed.count, int(totals.sum()))
    ends = np.searchsorted(places_N, starts + totals)  # of each exponent, in the places
    exponents_N = np.searchsorted(ends, np.arange(packed.count), side="right")
    return ranked_indices(words_W, places_N - starts[exponents_N], ends)


def _steps(packed: Packed) -> Words:
    """What is added to each pattern, modulo 2^16. Raises: Malformed."""
    halves = np.empty((packed.count, 2), dtype=np.uint8)
    for column, frame in enumerate(packed.frames[1:]):
        halves[:, column] = np.frombuffer(decompress(frame, packed.count, packed.count), dtype=np.uint8)
    steps_N: Words = halves.view("<u2")[:, 0]
    if not steps_N.all():
        raise Malformed("has a change of nothing")
    return steps_N


def compress(data: bytes) -> bytes:
    """One zstd frame, with its content's size and no checksum: what is made of it is hashed anyway."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data)


def decompress(frame: bytes, least: int, most: int) -> bytes:
    """What a single zstd frame holds: `least` to `most` bytes.

    The size that it announces is looked at before anything is allocated, and it gets no byte beyond that.

    Raises: Malformed.
    """
    try:
        size = zstandard.frame_content_size(frame)
        if not least <= size <= most:
            raise Malformed(f"has a frame of {size} bytes where {least} to {most} can be")
        data = zstandard.ZstdDecompressor().decompress(frame, read_across_frames=False, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Malformed(f"has what is no zstd frame: {error}") from error
    if len(data) != size:
        raise Malformed(f"has a frame of {len(data)} bytes that announces {size}")
    return data


def _gaps(places_N: Indices) -> bytes:
    """Each gap, which is what lies between a place and the one before, as its 255s and then the rest."""
    gaps_N = np.diff(places_N, prepend=-1) - 1
    ends_N = np.cumsum(gaps_N // ESCAPE + 1) - 1
    stream = np.full(int(ends_N[-1]) + 1, ESCAPE, dtype=np.uint8)
    stream[ends_N] = gaps_N % ESCAPE
    return stream.tobytes()


def _places(frame: bytes, count: int, listed: int) -> Indices:
    """Ascending, as gaps cannot be negative. Raises: Malformed: not `count` of them, or one is beyond the list."""
    stream = np.frombuffer(decompress(frame, count, count + listed // ESCAPE), dtype=np.uint8)
    ends = stream != ESCAPE
    if np.count_nonzero(ends) != count or not ends[-1]:
        raise Malformed(f"has {np.count_nonzero(ends)} gaps for {count} changes")
    places_N: Indices = np.cumsum(stream, dtype=np.int64)[ends] + np.arange(count)
    if places_N[-1] >= listed:
        raise Malformed(f"changes word {places_N[-1]} of {listed}")
    return places_N


def _words(data: bytes) -> Words:
    """Little-endian; a last single byte is the low one of its word."""
    return np.frombuffer(data if len(data) % 2 == 0 else data + b"\0", dtype="<u2")
