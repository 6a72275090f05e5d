"""A copy of a model whose matrices were rounded to 8 bits, as a cheap worker might run it."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def int8_weights(folder: Path, target: Path) -> Path:
    """`target`: as `folder`, each row of each matrix rounded to 255 levels between plus and minus its largest value."""
    shutil.copytree(folder, target)
    tensors = {name: _rounded(tensor) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim < 2:
        return tensor
    values = tensor.float()
    step = values.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return ((values / step).round() * step).to(tensor.dtype)
