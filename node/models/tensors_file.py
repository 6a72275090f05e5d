"""Writes bfloat16 safetensors, byte for byte the same for the same tensors. Reading is `node.tensors`.

The layout is that of the format's own library (tensors by name, header padded with spaces to 8 bytes), written here
so that pinned digests depend on no library's version. Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt


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
