"""Manifests: their bytes, and what is refused of them."""

import json
import struct
from pathlib import Path

import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from node.errors import Malformed, StoreError
from node.shards.manifest import CHUNK_BYTES, MAX_MANIFEST_BYTES, FileEntry, Manifest, build
from node.tensors import TensorEntry, read_tensors

HELLO = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f"  # BLAKE3 of b"hello"


def safetensors(table: dict[str, object], data: bytes) -> bytes:
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + data


def wire(**changes: object) -> dict[str, object]:
    file = {"name": "a", "size": 5, "chunks": [HELLO]}
    return {"files": [file | changes], "tensors": []}


def with_tensor(**changes: object) -> dict[str, object]:
    tensor = {"name": "w", "dtype": "U8", "shape": [2, 2], "file": "a", "offsets": [1, 5]}
    return wire() | {"tensors": [tensor | changes]}


def test_a_manifest_has_these_bytes_when_a_folder_has_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")

    manifest = build(tmp_path)

    assert manifest.encode() == b'{"files":[{"chunks":["' + HELLO.encode() + b'"],"name":"a","size":5}],"tensors":[]}'
    assert manifest.root == blake3(manifest.encode()).digest()


def test_a_manifest_is_the_same_when_built_from_a_copy_made_in_another_order(tmp_path: Path) -> None:
    for folder, names in (("one", "abc"), ("two", "cba")):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_bytes(name.encode())

    assert build(tmp_path / "one") == build(tmp_path / "two")
    assert [file.name for file in build(tmp_path / "one").files] == ["a", "b", "c"]


def test_a_file_is_cut_in_chunks_of_4_mib_when_it_is_larger(tmp_path: Path) -> None:
    data = bytes(4 * 1024 * 1024) + b"tail"
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "empty").write_bytes(b"")
    seen: list[tuple[int, int]] = []

    large, empty = build(tmp_path, lambda done, total: seen.append((done, total))).files

    assert large.chunks == (blake3(data[: 4 << 20]).digest(), blake3(b"tail").digest())
    assert (large.length(0), large.length(1)) == (4 << 20, 4)
    assert (empty.size, empty.chunks) == (0, ())
    assert seen == [(4 << 20, (4 << 20) + 4), ((4 << 20) + 4, (4 << 20) + 4)]


def test_what_is_no_file_of_a_checkpoint_is_left_out_when_a_manifest_is_built(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "two words").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"x")

    assert [file.name for file in build(tmp_path).files] == ["config.json"]


def test_an_empty_or_missing_folder_is_an_error_when_a_manifest_is_built(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no files"):
        build(tmp_path)
    with pytest.raises(StoreError, match="No such file"):
        build(tmp_path / "none")


def test_the_tensor_table_says_where_the_bytes_are_when_a_file_is_safetensors(tmp_path: Path) -> None:
    table = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [4, 12]},
        "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
    }
    data = safetensors(table, bytes(range(12)))
    (tmp_path / "model.safetensors").write_bytes(data)
    start = len(data) - 12

    assert build(tmp_path).tensors == (
        TensorEntry("a", "F32", (), "model.safetensors", start, start + 4),
        TensorEntry("b", "BF16", (2, 2), "model.safetensors", start + 4, start + 12),
    )


def test_the_tensor_table_agrees_with_the_library_when_it_wrote_the_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    weight = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    save_file({"weight": weight, "bias": torch.ones(3)}, tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes()

    entry = {each.name: each for each in build(tmp_path).tensors}["weight"]

    assert (entry.dtype, entry.shape) == ("BF16", (2, 3))
    assert data[entry.begin : entry.end] == weight.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"1234567", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 100) + b"{}", struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{x", struct.pack("<Q", 100_000) + b"[" * 100_000, safetensors({"a": 1}, b""),
        safetensors({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        safetensors({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}}, bytes(4)),
        safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(4)),
    ],
)  # fmt: skip
def test_a_safetensors_file_is_malformed_when_its_header_is(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(Malformed):
        read_tensors(path)


def test_a_manifest_parses_when_it_is_canonical() -> None:
    parsed = Manifest.parse(rfc8785.dumps(with_tensor()))
    assert parsed == Manifest(
        (FileEntry("a", 5, (bytes.fromhex(HELLO),)),), (TensorEntry("w", "U8", (2, 2), "a", 1, 5),)
    )


@pytest.mark.parametrize(
    "value",
    [
        wire(name="../a"), wire(name="a/b"), wire(name="/etc/passwd"), wire(name=""), wire(name="."), wire(name=".."),
        wire(name="a\n"), wire(name="a" * 129), wire(name="a\\b"), wire(name="ä"), wire(name=1),
        wire(size=-1), wire(size=2**53 - 1), wire(size=5.5), wire(size="5"), wire(size=True), wire(size=0),
        wire(size=None),
        wire(size=CHUNK_BYTES + 1), wire(chunks=[]), wire(chunks=[HELLO, HELLO]), wire(chunks=[HELLO.upper()]),
        wire(chunks=[HELLO[1:]]), wire(chunks=[HELLO + "\n"]), wire(chunks=HELLO), wire(extra=1),
        wire(size=CHUNK_BYTES + 5, chunks=[HELLO, HELLO]),
        {"files": [], "tensors": []}, {"files": wire()["files"]}, wire() | {"version": 1}, [], 1, None, "x",
        {"files": [{"name": name, "size": 0, "chunks": []} for name in ("b", "a")], "tensors": []},
        {"files": [{"name": name, "size": 0, "chunks": []} for name in ("a", "a")], "tensors": []},
        {"files": [{"name": name, "size": 0, "chunks": []} for name in ("A", "a")], "tensors": []},
        {"files": [{"name": f"{n:05}", "size": 0, "chunks": []} for n in range(1025)], "tensors": []},
        with_tensor(file="b"), with_tensor(offsets=[2, 6]), with_tensor(offsets=[5, 1]), with_tensor(offsets=[-1, 3]),
        with_tensor(offsets=[1]), with_tensor(dtype="X"), with_tensor(shape=[5]), with_tensor(shape=[1] * 9),
        with_tensor(shape=[2**41, 0]), with_tensor(name="a b"), with_tensor(name=""), with_tensor(name="x" * 257),
    ],
)  # fmt: skip
def test_a_manifest_is_malformed_when_a_value_is_out_of_bounds(value: object) -> None:
    with pytest.raises(Malformed):
        Manifest.parse(json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    "change",
    [lambda data: data + b"\n", lambda data: b" " + data, lambda data: data.replace(b'"size":5', b'"size":5.0'),
     lambda data: data.replace(b'"name":"a"', b'"name":"\\u0061"'), lambda data: data[:-1], lambda data: b"\xff" + data,
     lambda data: data.replace(b'"size":5', b'"size":5,"size":5'), lambda data: b""],
)  # fmt: skip
def test_a_manifest_is_malformed_when_its_bytes_are_not_the_canonical_ones(change) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Malformed):
        Manifest.parse(change(rfc8785.dumps(wire())))


@pytest.mark.parametrize(
    "data",
    [b"[" * 1_000_000, b'{"files":[' + b"{}," * 1_000_000 + b"{}]}", b"x" * (MAX_MANIFEST_BYTES + 1),
     b'{"files":' + b"9" * 100_000 + b"}", b'{"files":[' + b'"",' * 1_000_000 + b'""]}'],
)  # fmt: skip
def test_a_manifest_is_malformed_when_it_is_made_to_exhaust(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        Manifest.parse(data)
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(deadline=None, max_examples=200)
def test_parsing_ends_in_a_manifest_or_malformed_when_given_any_bytes(data: bytes) -> None:
    with pytest.raises(Malformed):
        Manifest.parse(data)


names = st.text("abAB01._-", min_size=1, max_size=8).filter(lambda name: name not in {".", ".."})
entries = st.builds(
    lambda name, digests, tail: FileEntry(
        name, CHUNK_BYTES * (len(digests) - 1) + tail if digests else 0, tuple(digests)
    ),
    names,
    st.lists(st.binary(min_size=32, max_size=32), max_size=3, unique=True),
    st.integers(1, CHUNK_BYTES - 1),
)


@given(st.lists(entries, min_size=1, max_size=5, unique_by=lambda entry: entry.name.lower()))
@settings(deadline=None, max_examples=50)
def test_a_manifest_comes_back_when_encoded_and_parsed(files: list[FileEntry]) -> None:
    digests = [chunk for file in files for chunk in file.chunks]
    if len(set(digests)) != len(digests):
        return
    manifest = Manifest(tuple(sorted(files, key=lambda file: file.name)), ())
    assert Manifest.parse(manifest.encode()) == manifest


MANY = 100_000
HEAD, TAIL = b'{"files":[{"chunks":["', b'"],"name":"a","size":5}],"tensors":[]}'


@pytest.mark.parametrize(
    "data",
    [
        HEAD[:-1] + b",".join([b"1"] * MANY) + TAIL[1:],
        HEAD[:10] + b",".join([b"1"] * MANY) + b'],"tensors":[]}',
        HEAD[:10] + b'],"tensors":[' + b",".join([b"1"] * MANY) + b"]}",
        HEAD + HELLO.encode() + TAIL[:-1] + b"," + b",".join(b'"%x":1' % n for n in range(MANY)) + b"}",
    ],
    ids=["chunks", "files", "tensors", "fields"],
)
def test_what_is_wrong_a_hundred_thousand_times_is_not_counted(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        Manifest.parse(data)

    cause = caught.value.__cause__
    assert cause is None or (isinstance(cause, ValidationError) and cause.error_count() <= 2)
