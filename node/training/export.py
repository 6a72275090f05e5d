"""A trained model as a folder: the base's files, with new bytes where the weights are.

Headers are the base's own, byte for byte, so that the same weights give the same file, a folder without any training
is the base itself, and a patch between two versions never moves a tensor.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from node.errors import ConfigError, Malformed, StoreError
from node.tensors import TensorEntry, parse_header, read_header
from node.training.folders import whole_folder

_COPY_BYTES = 4 * 1024 * 1024


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
    try:
        header = read_header(source)
        entries = parse_header(header, source)
    except Malformed as error:
        raise StoreError(f"{source.parent}: {error}") from error
    with source.open("rb") as old, target.open("wb") as new:
        new.write(len(header).to_bytes(8, "little") + header)
        for entry in entries:
            new.seek(entry.begin)
            if entry.name in parameters:
                new.write(_bytes_of(entry, parameters[entry.name], source).data)
            else:
                old.seek(entry.begin)
                _copy(old, new, entry.end - entry.begin)
    return {entry.name for entry in entries} & parameters.keys()


def _bytes_of(entry: TensorEntry, parameter: Tensor, source: Path) -> npt.NDArray[np.uint8]:
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
