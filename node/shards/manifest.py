"""What a checkpoint consists of: files, chunks and tensors, as canonical bytes whose BLAKE3 is on chain."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import rfc8785
from blake3 import blake3
from pydantic import BaseModel, ConfigDict, FailFast, Field, StringConstraints, ValidationError

from ledger.base import Digest
from ledger.parsing import first_problem
from node.errors import Malformed, StoreError
from node.files import disk_refused
from node.progress import OnProgress
from node.runspec import Hex32
from node.shards.cutting import cut, cut_bytes
from node.tensors import BITS, MAX_FILE_BYTES, MAX_RANK, TensorEntry, read_tensors

CHUNK_BYTES = 4 << 20  # protocol, "Weights"
MAX_MANIFEST_BYTES = 8 << 20  # 62 GB of weights have 1 MB (protocol, "Weights"); this is for 500 GB
MAX_FILES = 1024
MAX_TENSORS = 1 << 16
NAME = r"^[A-Za-z0-9._-]{1,128}$"  # protocol, "Weights"
SAFETENSORS = ".safetensors"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of `size` bytes; `chunks` are the BLAKE3s of its consecutive 4 MiB, the last may be shorter."""

    name: str
    size: int
    chunks: tuple[bytes, ...]

    def length(self, chunk: int) -> int:
        """Bytes of chunk number `chunk`."""
        return min(CHUNK_BYTES, self.size - chunk * CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files ascend by name, tensors by name. The same weights have the same manifest, whatever their version."""

    files: tuple[FileEntry, ...]
    tensors: tuple[TensorEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def chunks(self) -> int:
        """Number of chunks of all files; they are numbered through, file after file."""
        return sum(len(file.chunks) for file in self.files)

    @property
    def root(self) -> Digest:
        """BLAKE3 of `encode()`: the manifest root on chain."""
        return Digest(blake3(self.encode()).digest())

    def encode(self) -> bytes:
        """Canonical JSON (RFC 8785).

        Raises:
            Malformed: a name, a number or an amount is out of the protocol's bounds.
        """
        try:
            return rfc8785.dumps(_Manifest.of(self).model_dump(mode="json"))
        except ValidationError as error:
            raise _malformed(error) from error

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """The manifest in `data`.

        Raises:
            Malformed: over a limit, not canonical, a name that is a path, numbers that do not agree with each other.
        """
        # Checked before any JSON is read: a nest of empty lists takes a hundred times its bytes in memory.
        containers = data.count(b"[") + data.count(b"{")
        if len(data) > MAX_MANIFEST_BYTES or containers > 3 * MAX_TENSORS + 2 * MAX_FILES + 3:
            raise Malformed(f"manifest of {len(data)} bytes and {containers} lists: over the limit")
        try:
            wire = _Manifest.model_validate_json(data)
        except ValidationError as error:
            raise _malformed(error) from error
        manifest = wire.value()
        _require_consistent(manifest)
        if manifest.encode() != data:
            raise Malformed("manifest is not canonical JSON (RFC 8785): its root would not be unique")
        return manifest


def checkpoint_files(folder: Path) -> list[Path]:
    """What belongs to a checkpoint in `folder`: its regular files whose names the protocol permits, by name.

    Raises:
        StoreError: the folder cannot be read, or has none.
    """
    try:
        found = sorted(path for path in folder.iterdir() if re.fullmatch(NAME, path.name) and path.is_file())
    except OSError as error:
        raise disk_refused(f"checkpoint folder {folder}", error) from error
    if not found:
        raise StoreError(f"checkpoint folder {folder} has no files")
    return found


def build(folder: Path, progress: OnProgress | None = None, copy: Path | None = None) -> Manifest:
    """The manifest of the files in `folder`; the same files give the same bytes.

    The files are copied to the empty folder `copy`, if that is given: the manifest is that of the copies.

    Raises:
        StoreError: the folder or a file cannot be read, or a copy not written.
        Malformed: a safetensors header, or the folder's amount of files, is out of bounds.
    """
    paths = checkpoint_files(folder)
    try:
        total = sum(path.stat().st_size for path in paths)
        files: list[FileEntry] = []
        tensors: list[TensorEntry] = []
        done = 0
        for path in paths:
            copied = None if copy is None else copy / path.name
            files.append(_file_entry(path, _from(done, total, progress), copied))
            done += files[-1].size
            if path.suffix == SAFETENSORS:
                tensors.extend(read_tensors(copied or path))
    except OSError as error:
        raise disk_refused(error.filename or f"checkpoint folder {folder}", error) from error
    manifest = Manifest(tuple(files), tuple(sorted(tensors, key=lambda tensor: tensor.name)))
    return Manifest.parse(manifest.encode())


def of_bytes(name: str, data: bytes) -> Manifest:
    """The manifest of one file alone, whatever it holds."""
    return Manifest((FileEntry(name, len(data), tuple(cut_bytes(data, CHUNK_BYTES))),), ())


def _from(before: int, total: int, progress: OnProgress | None) -> Callable[[int], None]:
    def report(count: int) -> None:
        if progress is not None:
            progress(before + count, total)

    return report


def _file_entry(path: Path, progress: Callable[[int], None], copy: Path | None = None) -> FileEntry:
    size = 0

    def read(count: int) -> None:
        nonlocal size
        size = count
        progress(count)

    chunks = cut(path, CHUNK_BYTES, read, copy)
    return FileEntry(path.name, size, tuple(chunks))


# --- Outside data


class _Wire(BaseModel):
    """What is no field is found when the bytes are compared with the canonical ones: to name each would take pydantic a
    hundred times the bytes, as would naming each wrong item of a list."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


FileName = Annotated[str, StringConstraints(pattern=NAME)]
Bytes = Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]


class _File(_Wire):
    name: FileName
    size: Bytes
    chunks: Annotated[list[Hex32], FailFast()]

    @classmethod
    def of(cls, entry: FileEntry) -> _File:
        return cls(name=entry.name, size=entry.size, chunks=[chunk.hex() for chunk in entry.chunks])

    def value(self) -> FileEntry:
        return FileEntry(self.name, self.size, tuple(bytes.fromhex(chunk) for chunk in self.chunks))


class _Tensor(_Wire):
    name: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,256}$")]
    dtype: Annotated[str, StringConstraints(max_length=16)]
    shape: Annotated[list[Bytes], Field(max_length=MAX_RANK)]
    file: FileName
    offsets: tuple[Bytes, Bytes]

    @classmethod
    def of(cls, entry: TensorEntry) -> _Tensor:
        shape, offsets = list(entry.shape), (entry.begin, entry.end)
        return cls(name=entry.name, dtype=entry.dtype, shape=shape, file=entry.file, offsets=offsets)

    def value(self) -> TensorEntry:
        return TensorEntry(self.name, self.dtype, tuple(self.shape), self.file, *self.offsets)


class _Manifest(_Wire):
    files: Annotated[list[_File], Field(min_length=1, max_length=MAX_FILES), FailFast()]
    tensors: Annotated[list[_Tensor], Field(max_length=MAX_TENSORS), FailFast()]

    @classmethod
    def of(cls, manifest: Manifest) -> _Manifest:
        files = [_File.of(entry) for entry in manifest.files]
        return cls(files=files, tensors=[_Tensor.of(entry) for entry in manifest.tensors])

    def value(self) -> Manifest:
        return Manifest(tuple(file.value() for file in self.files), tuple(tensor.value() for tensor in self.tensors))


def _malformed(error: ValidationError) -> Malformed:
    return Malformed(f"manifest: {first_problem(error, 'JSON')}")


def _require_consistent(manifest: Manifest) -> None:
    _require_files(manifest)
    tensors = [tensor.name for tensor in manifest.tensors]
    if tensors != sorted(set(tensors)):
        raise Malformed("manifest: tensors do not ascend by name")
    sizes = {file.name: file.size for file in manifest.files}
    for tensor in manifest.tensors:
        if tensor.dtype not in BITS or not tensor.fits(sizes.get(tensor.file, 0)):
            raise Malformed(f"manifest: tensor {tensor.name} does not fit its dtype, shape and file")


def _require_files(manifest: Manifest) -> None:
    names = [file.name for file in manifest.files]
    if names != sorted(names) or len({name.lower() for name in names}) != len(names):
        raise Malformed("manifest: files do not ascend by name, or two would be one where case does not count")
    lengths: dict[bytes, int] = {}
    for file in manifest.files:
        if file.name in {".", ".."}:
            raise Malformed(f"manifest: {file.name!r} is not a file's name")
        if len(file.chunks) != -(-file.size // CHUNK_BYTES):
            raise Malformed(f"manifest: {file.name} has {len(file.chunks)} chunks for {file.size} bytes")
        for chunk, digest in enumerate(file.chunks):
            if lengths.setdefault(digest, file.length(chunk)) != file.length(chunk):
                raise Malformed(f"manifest: chunk {digest.hex()} has two lengths")
