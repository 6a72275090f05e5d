"""A trained model as a folder: the base's files, with new bytes where the weights are.

Headers are the base's own, byte for byte, so that the same weights give the same file, a folder without any training
is the base itself, and a patch between two versions never moves a tensor.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from pydantic_core import from_json
from torch import Tensor

from node.errors import ConfigError, StoreError
from node.training.folders import whole_folder

MAX_HEADER_BYTES = 100_000_000  # the format's own limit (safetensors, src/tensor.rs)
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def export(parameters: Mapping[str, Tensor], base: Path, folder: Path) -> None:
    """Writes the model of `parameters` (bfloat16, every name of a tied one) to `folder`, whole or not at all.

    Each `*.safetensors` of `base` is written with the same tensors in the same order; every other file is copied
    verbatim. Tensors of the base that are no parameters keep their bytes.

    Raises: StoreError. ConfigError: `base` does not hold these parameters in bfloat16.
    """
    with whole_folder(folder) as partial:
        written: set[str] = set()
        for source in sorted(path for path in base.iterdir() if path.is_file()):
            if source.suffix == ".safetensors":
                written |= _rewrite(source, partial / source.name, parameters)
            else:
                shutil.copyfile(source, partial / source.name)
        stored = {parameters[name].data_ptr() for name in written}
        missing = [name for name, parameter in parameters.items() if parameter.data_ptr() not in stored]
        if missing:
            raise ConfigError(f"{base} has no tensor {missing[0]}: it cannot be the base of this model")


def _rewrite(source: Path, target: Path, parameters: Mapping[str, Tensor]) -> set[str]:
    """Returns the parameters that `source` has."""
    with source.open("rb") as old, target.open("wb") as new:
        header = _read_header(old)
        new.write(len(header).to_bytes(8, "little") + header)
        start = new.tell()
        entries = list(_entries(header, source))
        for entry in entries:
            new.seek(start + entry.begin)
            if entry.name in parameters:
                new.write(_bytes_of(entry, parameters[entry.name], source).data)
            else:
                old.seek(start + entry.begin)
                _copy(old, new, entry.end - entry.begin)
    return {entry.name for entry in entries} & parameters.keys()


def _read_header(file: BinaryIO) -> bytes:
    size = int.from_bytes(file.read(8), "little")
    header = file.read(size) if size <= MAX_HEADER_BYTES else b""
    if not header or len(header) != size:
        raise StoreError(f"{file.name}: no safetensors header of {size} bytes")
    return header


def _entries(header: bytes, source: Path) -> Iterator[_Entry]:
    try:
        for name, info in from_json(header).items():
            if name != "__metadata__":
                begin, end = info["data_offsets"]
                yield _Entry(name, info["dtype"], tuple(info["shape"]), int(begin), int(end))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{source}: not a safetensors header: {error}") from error


def _bytes_of(entry: _Entry, parameter: Tensor, source: Path) -> npt.NDArray[np.uint8]:
    wanted = (entry.dtype, entry.shape, entry.end - entry.begin)
    if parameter.dtype != torch.bfloat16 or wanted != ("BF16", tuple(parameter.shape), 2 * parameter.numel()):
        raise ConfigError(
            f"{source}: {entry.name} is {entry.dtype} {entry.shape}, the model's is {parameter.dtype} "
            f"{tuple(parameter.shape)}: a base in bfloat16 is needed"
        )
    flat: npt.NDArray[np.uint8] = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        piece = source.read(min(size, _COPY_BYTES))
        if not piece:
            raise StoreError(f"{source.name}: shorter than its header says")
        target.write(piece)
        size -= len(piece)
