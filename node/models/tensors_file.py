"""Writes bfloat16 safetensors, byte for byte the same for the same tensors; reads the headers of any.

The layout is that of the format's own library (tensors by name, header padded with spaces to 8 bytes), written here
so that pinned digests depend on no library's version. Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json

from node.errors import Malformed

MAX_HEADER_BYTES = 100_000_000  # the library's own limit


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the header describes it."""

    dtype: str
    shape: tuple[int, ...]


def bfloat16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Bit patterns of finite `values` rounded to bfloat16, to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_bfloat16(path: Path, tensors: Mapping[str, npt.NDArray[np.uint16]]) -> None:
    """Writes bit patterns as a safetensors file of bfloat16 tensors, in order of their names."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name in sorted(tensors):
        end = start + tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(np.ascontiguousarray(tensors[name], dtype="<u2").data)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Names, types and shapes of the tensors in a safetensors file; its data is not read.

    Raises:
        Malformed: not a safetensors header.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= MAX_HEADER_BYTES:
            raise Malformed(f"{path.name}: not a safetensors file (header of {size} bytes)")
        text = file.read(size)
    try:
        header = from_json(text)
        header.pop("__metadata__", None)
        return {str(name): TensorInfo(str(info["dtype"]), _shape(info["shape"])) for name, info in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"{path.name}: not a safetensors header ({error})") from error


def _shape(sizes: list[object]) -> tuple[int, ...]:
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ValueError(f"shape {sizes}")
    return tuple(int(str(size)) for size in sizes)
