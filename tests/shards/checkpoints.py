"""Small checkpoints to store."""

from pathlib import Path

from node.shards.manifest import CHUNK_BYTES


def checkpoint(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def chunks_of(source: Path) -> list[tuple[int, int, bytes]]:
    found = []
    for index, path in enumerate(sorted(source.iterdir())):
        data = path.read_bytes()
        for chunk, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            found.append((index, chunk, data[start : start + CHUNK_BYTES]))
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def four_chunks(folder: Path) -> Path:
    """Two and a short one in `weights`, one in `config`."""
    weights = b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"tail"
    return checkpoint(folder, config=b"{}", weights=weights)
