"""Whether files on disk are what a manifest says."""

from pathlib import Path

from blake3 import blake3

from node.shards.holding import Holding
from node.shards.manifest import Manifest
from node.shards.partial import read_place


def sizes_agree(folder: Path, manifest: Manifest) -> bool:
    """At a glance: every file is there and has its size."""
    paths = {folder / file.name: file.size for file in manifest.files}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def hashes_agree(holding: Holding) -> bool:
    """Every byte, hashed now. Raises: OSError."""
    places = (holding.place(number) for number in range(len(holding.verified)))
    return all(
        blake3(read_place(place)).digest() == digest for place, digest in zip(places, holding.digests(), strict=True)
    )
