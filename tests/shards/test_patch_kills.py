"""What a kill leaves of patches, and how long a patch stays."""

import asyncio
import signal
import sys
import textwrap
from pathlib import Path

from ledger.base import Digest
from node.shards.patch_index import PatchIndex, Span
from node.shards.store import CheckpointStore
from tests.shards.patchers import Start, published
from tests.shards.sources import contents
from tests.shards.versions import versions

KILLED = """
    import asyncio, os, random, signal, sys, time
    from pathlib import Path
    from node.shards.client import Downloader
    from node.shards.patch_index import PatchIndex
    from node.shards.patching import Patching
    from node.shards.selection import Selection
    from node.shards.store import CheckpointStore
    from node.transport.connections import Connections

    class Store(CheckpointStore):
        "Kills its process after the first chunk of what a patch makes."
        written = 0

        def write_chunk(self, root, file, chunk, data):
            super().write_chunk(root, file, chunk, data)
            self.written += root.hex() == lineage[-1]
            if self.written == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    async def main(folder, source):
        async with Connections(allow_private=True) as http:
            selection = Selection(random.Random(), time.monotonic)
            client = Downloader(Store(folder), http, lambda: [source], selection)
            patching = Patching(client, PatchIndex(folder / "patches"))
            roots = [bytes.fromhex(root) for root in lineage]
            await patching.bring(roots[-1], roots)

    folder, source, *lineage = sys.argv[1:]
    asyncio.run(main(Path(folder), source))
"""


async def test_a_version_is_whole_and_its_patch_vouched_for_once_more_when_a_kill_came_between_two_chunks(
    tmp_path: Path, start: Start
) -> None:
    sides = versions(tmp_path, 2)
    origin = await start("origin")
    lineage = await published(origin, sides)
    CheckpointStore(tmp_path / "node").add(sides[0].folder)
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED),
        str(tmp_path / "node"),
        origin.url,
        *(root.hex() for root in lineage),
    ]
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    assert await process.wait() == -signal.SIGKILL

    node = await start("node", origin.url)
    assert node.store.complete(lineage[1]) is None
    assert node.patching.index.find(Span(*lineage)) is None
    patched = await node.bring(lineage)

    folder = node.store.complete(lineage[1])
    assert folder is not None and contents(folder) == contents(sides[1].folder)
    assert patched.patches == 1
    assert PatchIndex(tmp_path / "node" / "patches").find(Span(*lineage)) is not None


async def test_nothing_is_left_of_a_patch_when_a_kill_came_while_it_was_made(tmp_path: Path) -> None:
    folder = tmp_path / "patches"
    index = PatchIndex(folder)
    with index.staged() as staged:
        (staged / "patch").write_bytes(b"half")
        again = PatchIndex(folder)  # as the next process has it
        assert not staged.exists()

    (folder / ("0" * 64 + "-" + "1" * 64)).write_bytes(b"torn")
    again = PatchIndex(folder)
    assert again.find(Span(Digest(b"\x11" * 32), Digest(bytes(32)))) is None


async def test_a_patch_stays_as_long_as_what_it_makes(tmp_path: Path) -> None:
    index = PatchIndex(tmp_path)
    first, second, patch, fetched = (Digest(bytes([n]) * 32) for n in range(4))
    index.put(Span(first, second), patch)
    with index.fetching(fetched):
        assert index.keep({second}) == {patch, fetched}
    assert PatchIndex(tmp_path).keep({second}) == {patch}
    assert index.keep({first}) == set()
    assert PatchIndex(tmp_path).find(Span(first, second)) is None
