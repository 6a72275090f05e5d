"""Safetensors as this project writes them, read and written again by the format's library."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from node.models.tensors_file import bfloat16_bits, write_bfloat16

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=2.0**127, min_value=-(2.0**127)))


def test_the_library_writes_the_same_bytes(tmp_path: Path) -> None:
    tensors = {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        for name, shape in (("model.b", (3, 5)), ("model.a", (7,)), ("z", (2, 2, 2)))
    }

    write_bfloat16(tmp_path / "ours", {k: v.view(torch.int16).numpy().view(np.uint16) for k, v in tensors.items()})
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})

    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert all(torch.equal(load_file(tmp_path / "ours")[name], tensor) for name, tensor in tensors.items())


@settings(deadline=None, max_examples=100)
@given(values=FLOATS)
def test_rounding_is_torchs(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)

    expected = torch.from_numpy(array.copy()).bfloat16().view(torch.int16).numpy().view(np.uint16)

    assert (bfloat16_bits(array) == expected).all()
