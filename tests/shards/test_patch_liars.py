"""Patches that are not what they are said to be, or not to be had: who is banned, and how the version comes still."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from node.shards.manifest import build
from node.shards.patch_index import Span
from node.shards.patch_making import make_patch
from node.shards.patch_sides import Side
from node.shards.patch_words import compress
from node.shards.patching import Patched
from tests.shards.checkpoints import checkpoint, flip_unnoticed
from tests.shards.patchers import SMALL, Node, Start, published, roots
from tests.shards.sources import QUICK, answering, contents
from tests.shards.versions import trained, versions


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record for record in caplog.records if record.levelno == logging.WARNING and hasattr(record, "fields")]
    return [str(record.fields["reason"]) for record in said]


async def lying(start: Start, name: str, sides: Sequence[Side], folder: Path, patch: bytes) -> Node:
    """A node that vouches for `patch`, has it, and has nothing else."""
    liar = await start(name)
    source = checkpoint(folder, patch=patch)
    liar.patching.index.put(Span(*roots(sides)), liar.store.add(source))
    return liar


def wrong_patch(sides: Sequence[Side], path: Path) -> bytes:
    """From the first side to something else, under the name of the second."""
    moved = trained((sides[0].folder / "weights").read_bytes(), seed=9)
    other = checkpoint(path.parent / (path.name + "-other"), weights=moved, config=b"{}")
    make_patch(sides[0], Side(other, build(other)), path, 1 << 30, 1)
    data = path.read_bytes()
    return data[:44] + sides[1].manifest.root + data[76:]


@pytest.mark.parametrize("kind", ["wrong bytes", "other versions", "no patch", "a bomb"])
async def test_a_liar_is_banned_and_the_full_version_fetched(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    sides = versions(tmp_path, 2, SMALL)
    lineage = roots(sides)
    head = b"in/patch/1\0\0" + lineage[0] + lineage[1]
    bomb = compress(bytes(1 << 26))
    patch = {
        "wrong bytes": wrong_patch(sides, tmp_path / "wrong"),
        "other versions": head[:12] + head[44:] + head[12:44],
        "no patch": b"what is this",
        "a bomb": head + b"\1\0\0\0\0\0\0\0\0" + len(bomb).to_bytes(4, "little") + bytes(8) + bomb,
    }[kind]
    origin = await start("origin")
    for each in sides:
        origin.store.add(each.folder)
    liar = await lying(start, "liar", sides, tmp_path / "lie", patch)
    node = await start("node", liar.url, origin.url)
    node.store.add(sides[0].folder)

    with caplog.at_level(logging.WARNING):
        folder = await node.fetch(lineage)

    assert contents(folder) == contents(sides[1].folder)
    assert list(node.patching.downloader.selection.banned) == [liar.url]
    assert warnings(caplog)
    assert node.patching.index.find(Span(*lineage)) is None  # it vouches for nothing wrong


async def test_nobody_is_banned_for_a_patch_that_changed_on_this_disk_before_it_was_applied(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    sides = versions(tmp_path, 2, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides)
    node = await start("node", origin.url)
    node.store.add(sides[0].folder)
    patch = origin.patching.index.find(Span(*lineage))
    assert patch is not None
    file = await node.patching.downloader.fetch(patch) / "patch"
    flip_unnoticed(file, file.stat().st_size - 5)

    with caplog.at_level(logging.WARNING):
        assert await node.bring(lineage) == Patched()

    assert "has changed on this disk" in warnings(caplog)[-1]
    assert not node.patching.downloader.selection.banned
    assert (await node.bring(lineage)).patches == 1  # which was fetched again


async def test_what_most_sources_name_is_taken(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2, SMALL)
    liar = await lying(start, "liar", sides, tmp_path / "lie", wrong_patch(sides, tmp_path / "wrong"))
    honest = [await start(f"honest{number}") for number in range(2)]
    for each in honest:
        lineage = await published(each, sides)
    node = await start("node", liar.url, *(each.url for each in honest))
    node.store.add(sides[0].folder)

    assert (await node.bring(lineage)).patches == 1


async def test_another_patch_is_tried_when_the_first_cannot_be_had(
    tmp_path: Path, start: Start, servers: AsyncExitStack
) -> None:
    sides = versions(tmp_path, 2, SMALL)

    async def handler(request: web.Request) -> web.StreamResponse:
        """Names one that nobody has."""
        named = request.match_info["path"].startswith("v1/patches")
        return web.Response(body=bytes(32)) if named else web.Response(status=500)

    origin = await start("origin")
    lineage = await published(origin, sides)
    node = await start("node", await answering(servers, handler), origin.url)
    node.patching.downloader.pace = replace(QUICK, patience_seconds=0.5, brief_wait_seconds=0)
    node.store.add(sides[0].folder)

    assert (await node.bring(lineage)).patches == 1
