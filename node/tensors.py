"""The tensor table at the head of a safetensors file: where each tensor's bytes lie. No tensor is read."""

import math
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from node.errors import Malformed

MAX_HEADER_BYTES = 16 << 20  # the library permits 100 MB; a thousand tensors take 0.1
MAX_RANK = 8
MAX_FILE_BYTES = 1 << 40  # no dimension can be larger, either
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
}  # fmt: skip
"""Bits per element, by the names of safetensors' format description."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor whose little-endian elements are bytes `begin` to `end` (exclusive) of `file`, from its start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    begin: int
    end: int

    def fits(self, file_bytes: int) -> bool:
        """Whether dtype, shape, and place in a file of `file_bytes` agree; the dtype is one of `BITS`."""
        inside = 0 <= self.begin <= self.end <= file_bytes
        return inside and math.prod(self.shape) * BITS[self.dtype] == 8 * (self.end - self.begin)


def read_tensors(path: Path) -> list[TensorEntry]:
    """The tensors of the safetensors file at `path`.

    Raises:
        Malformed: the header is not one.
        OSError: the file cannot be read.

    Source: https://github.com/huggingface/safetensors, "Format".
    """
    return parse_header(read_header(path), path)


def read_header(path: Path) -> bytes:
    """The JSON at the head of the safetensors file at `path`, as it stands there; bytes 8 to 8 + its length.

    Raises: Malformed. OSError: the file cannot be read.
    """
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, file_bytes - 8):
            raise Malformed(f"{path.name}: safetensors header of {length} bytes in a file of {file_bytes}")
        return file.read(length)


def parse_header(header: bytes, path: Path) -> list[TensorEntry]:
    """The tensors that `header`, read from `path`, describes, in its order. Raises: Malformed. OSError."""
    start, file_bytes = 8 + len(header), path.stat().st_size
    try:
        table = from_json(header)
        entries = [_entry(path.name, start, name, fields) for name, fields in table.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Malformed(f"{path.name}: not a safetensors header: {error}") from error
    for entry in entries:
        if not entry.fits(file_bytes):
            raise Malformed(f"{path.name}: tensor {entry.name} does not fit its dtype, shape and file")
    return entries


def _entry(file: str, start: int, name: str, fields: dict[str, object]) -> TensorEntry:
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"dtype {dtype!r}")
    begin, end = _integers(offsets)
    return TensorEntry(name, dtype, _integers(shape), file, start + begin, start + end)


def _integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"not a list of at most {MAX_RANK} sizes")
    if not all(type(each) is int and 0 <= each <= MAX_FILE_BYTES for each in value):
        raise ValueError(f"{value!r} are not sizes")
    return tuple(value)
