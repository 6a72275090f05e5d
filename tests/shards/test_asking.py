"""What one request to one source takes of this node."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from ledger.base import Digest
from node.shards.manifest import MAX_MANIFEST_BYTES
from node.transport.connections import Connections
from tests.shards.sources import downloader, speaking


def resident_bytes() -> int:
    """Of this process. Source: proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_sources_that_hold_a_manifest_back_take_no_memory_meanwhile(tmp_path: Path) -> None:
    async with AsyncExitStack() as servers, Connections(allow_private=True) as http:
        sources = [await speaking(servers, lambda kind, name: b"HTTP/1.1 200", stall=True) for _ in range(8)]
        asker = downloader(tmp_path / "store", http, sources).asker
        before = resident_bytes()
        asked = [asyncio.create_task(asker.manifest(source, Digest(bytes(32)))) for source in sources]
        await asyncio.sleep(0.2)
        grown = resident_bytes() - before
        assert await asyncio.gather(*asked) == [None] * 8
    assert grown < MAX_MANIFEST_BYTES  # each has room for as much
