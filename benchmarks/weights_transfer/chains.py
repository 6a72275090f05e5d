"""A chain of nodes behind an origin of limited speed: every node forwards what it receives while it receives it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from node.shards.manifest import build

from .nodes import Lab, Told, free_port, lab


@dataclass(frozen=True, slots=True)
class Chain:
    """Seconds from publishing to the last node's verified file, and to its first verified chunk."""

    seconds: float
    first_chunk_seconds: float
    rss_increase_mib: float


def ours(source: Path, depth: int, megabytes_per_second: float) -> Chain:
    """All nodes wait for the version when it is published."""
    root = build(source).root.hex()
    with lab() as here:
        origin = here.peer("origin")
        line = here.begin("line.py", origin.port, megabytes_per_second)
        nodes = [here.peer(f"node-{number}") for number in range(depth)]
        for node, parent in zip(nodes, [line, *nodes], strict=False):
            node.ask({"idle": 1})
            node.tell({"fetch": root, "sources": [parent.url]})
        published = origin.ask({"add": str(source)})["published"]
        answers = [node.answer() for node in nodes]
        increases = [node.ask({"figures": 1})["rss_increase_mib"] for node in nodes]
        first = answers[-1]["first_chunk"] - published
        return Chain(max(each["done"] for each in answers) - published, first, max(increases))


def shardcast(source: Path, depth: int, megabytes_per_second: float) -> float:
    """Seconds from the version's publication to the client's verified file, over `depth` - 1 relays."""
    with lab() as here:
        origin = here.begin("shardcast_side.py", "origin", here.folder / "origin", free_port())
        upstream = here.begin("line.py", origin.port, megabytes_per_second)
        for number in range(depth - 1):
            folder = here.folder / f"relay-{number}"
            upstream = here.begin("shardcast_side.py", "relay", folder, free_port(), upstream.url)
        leaf = here.begin("shardcast_side.py", "client", here.folder / "leaf", upstream.url)
        added = origin.ask({"add": str(source / "model.bin")})
        return float(leaf.ask({"fetch": added["version"]})["done"] - added["published"])


def libtorrent(source: Path, depth: int, megabytes_per_second: float) -> float:
    """Seconds from the first request to the last node's verified file."""
    with lab() as here:
        seed, nodes = _torrents(here, depth)
        metadata = seed.ask({"seed": str(source / "model.bin")})["metadata"]
        line = here.begin("line.py", seed.port, megabytes_per_second)
        for node, parent in zip(nodes, [line, *nodes], strict=False):
            node.tell({"fetch": metadata, "peers": [parent.port]})
        return max(float(node.answer()["seconds"]) for node in nodes)


def _torrents(here: Lab, count: int) -> tuple[Told, list[Told]]:
    seed, *nodes = [here.begin("torrent_side.py", here.folder / f"torrent-{number}") for number in range(count + 1)]
    return seed, nodes
