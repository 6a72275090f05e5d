"""The head of a safetensors file, written by the format's library and by someone hostile."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from node.errors import Malformed
from node.tensors import read_tensors


def test_a_header_gives_names_types_shapes_and_sizes(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "file")

    found = {
        entry.name: (entry.dtype, entry.shape, entry.end - entry.begin) for entry in read_tensors(tmp_path / "file")
    }

    assert found == {"a": ("F32", (2, 3), 24), "b": ("BF16", (4,), 8)}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": 1}',
        b'{"a": {"dtype": "BF16"}}',
        b'{"a": {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "BF16", "shape": "x", "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}',
        b"[" * 100_000,
    ],
)
def test_headers_that_are_none_are_malformed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text)

    with pytest.raises(Malformed):
        read_tensors(tmp_path / "file")


def test_a_header_that_claims_to_be_huge_is_malformed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff" * 64)

    with pytest.raises(Malformed):
        read_tensors(tmp_path / "file")
