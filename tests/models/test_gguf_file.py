"""Reading GGUF against files that the format's own library wrote."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import Malformed
from node.models.gguf_file import parse_gguf

TYPES = {
    "q4": gguf.GGMLQuantizationType.Q4_1,
    "q8": gguf.GGMLQuantizationType.Q8_0,
    "f": gguf.GGMLQuantizationType.F32,
}


@pytest.fixture(scope="module")
def matrices() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=(6, 64)).astype(np.float32) for name in TYPES}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, matrices: dict[str, np.ndarray]) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("number", 7)
    writer.add_bool("flag", True)
    writer.add_array("words", ["a", "é"])
    for name, kind in TYPES.items():
        writer.add_tensor(name, gguf.quantize(matrices[name], kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path).read_bytes()


def test_tensors_are_those_that_the_library_decodes(written: bytes, matrices: dict[str, np.ndarray]) -> None:
    parsed = parse_gguf(written)

    for name, kind in TYPES.items():
        expected = gguf.dequantize(gguf.quantize(matrices[name], kind), kind)
        np.testing.assert_array_equal(parsed.tensor(name), expected.reshape(6, 64))


def test_metadata_is_read(written: bytes) -> None:
    metadata = parse_gguf(written).metadata

    assert (metadata["number"], metadata["flag"], metadata["words"]) == (7, True, ["a", "é"])


def test_types_that_are_not_converted_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("half", np.zeros((2, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(Malformed, match="half"):
        parse_gguf(path.read_bytes())


@settings(deadline=None, max_examples=50)
@given(length=st.integers(0, 400))
def test_a_header_that_is_cut_short_is_malformed(written: bytes, length: int) -> None:
    header_end = len(written) - 6 * (2 * 20 + 2 * 34 + 64 * 4)
    with pytest.raises(Malformed):
        parse_gguf(written[: min(length, header_end // 2)])
