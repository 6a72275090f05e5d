"""Safetensors as this project writes them, read and written again by the format's library."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from node.errors import Malformed
from node.models.tensors_file import TensorInfo, bfloat16_bits, read_header, write_bfloat16

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


def test_a_header_gives_names_types_and_shapes(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "file")

    assert read_header(tmp_path / "file") == {"a": TensorInfo("F32", (2, 3)), "b": TensorInfo("BF16", (4,))}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": 1}',
        b'{"a": {"dtype": "BF16"}}',
        b'{"a": {"dtype": "BF16", "shape": [-1]}}',
        b'{"a": {"dtype": "BF16", "shape": "x"}}',
        b"[" * 100_000,
    ],
)
def test_headers_that_are_none_are_malformed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text)

    with pytest.raises(Malformed):
        read_header(tmp_path / "file")


def test_a_header_that_claims_to_be_huge_is_malformed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff" * 64)

    with pytest.raises(Malformed):
        read_header(tmp_path / "file")
