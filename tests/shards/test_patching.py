"""Versions by patches through real sockets: from who made them, from who applied them, by chains, and without any."""

import asyncio
from pathlib import Path

from node.shards.patch_finding import Named
from node.shards.patch_index import Span
from node.shards.patch_making import make_patch
from node.shards.patching import Patched
from tests.roles.stage import until
from tests.shards.patchers import SMALL, Start, published, roots
from tests.shards.sources import contents
from tests.shards.versions import side, versions, weights


async def test_a_version_comes_as_a_patch_with_a_fraction_of_its_bytes(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2)
    origin = await start("origin")
    lineage = await published(origin, sides)
    node = await start("node", origin.url)
    node.store.add(sides[0].folder)

    patched = await node.bring(lineage)

    folder = node.store.complete(lineage[1])
    assert folder is not None and contents(folder) == contents(sides[1].folder)
    assert patched.patches == 1 and patched.moved_bytes < sides[1].manifest.size / 50
    assert origin.sent_bytes < sides[1].manifest.size / 40  # with manifests, questions and all


async def test_a_patch_goes_on_to_others_once_it_was_applied(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides)
    relay = await start("relay", origin.url)
    leaf = await start("leaf", relay.url)
    for node in (relay, leaf):
        node.store.add(sides[0].folder)

    await relay.fetch(lineage)
    sent = origin.sent_bytes
    folder = await leaf.fetch(lineage)

    assert contents(folder) == contents(sides[1].folder)
    assert origin.sent_bytes == sent
    assert 0 < relay.sent_bytes < sides[1].manifest.size / 10


async def test_a_child_waits_for_a_parent_that_waits_for_who_makes_the_patch(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2, SMALL)
    origin = await start("origin")
    relay = await start("relay", origin.url, named=Named([origin.url], origin.url, first_hand=True))
    leaf = await start("leaf", relay.url)
    lineage = roots(sides)
    for each in (origin, relay, leaf):
        each.store.add(sides[0].folder)
    origin.store.add(sides[1].folder)
    with origin.patching.index.expecting([Span(*lineage)]):  # as if it took long to make
        nodes = [asyncio.create_task(node.bring(lineage)) for node in (relay, leaf)]
        await until(lambda: all(f"/v1/patches/{lineage[1].hex()}" in node.asked for node in (origin, relay)))
        path = tmp_path / "made" / "patch"
        path.parent.mkdir()
        make_patch(sides[0], sides[1], path, 1 << 20, 1)
        origin.patching.index.put(Span(*lineage), origin.store.add(path.parent))

    assert [patched.patches for patched in await asyncio.gather(*nodes)] == [1, 1]
    assert f"/v1/chunks/{sides[1].manifest.files[1].chunks[0].hex()}" not in origin.sent


async def test_a_chain_of_eight_is_applied_and_one_of_nine_is_not(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 10, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides)
    near, far = await start("near", origin.url), await start("far", origin.url)
    near.store.add(sides[1].folder)
    far.store.add(sides[0].folder)

    assert (await near.bring(lineage)).patches == 8
    assert (await far.bring(lineage)).patches == 0
    assert contents(await near.fetch(lineage)) == contents(await far.fetch(lineage)) == contents(sides[9].folder)
    assert not any(near.store.complete(root) for root in lineage[2:9])  # none in between was written


async def test_the_shortest_chain_is_taken_when_several_versions_are_here(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 4, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides)
    node = await start("node", origin.url)
    for each in (sides[0], sides[2]):
        node.store.add(each.folder)

    assert (await node.bring(lineage)).patches == 1


async def test_versions_with_the_same_weights_are_one_step_of_a_chain(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 3, SMALL)
    origin = await start("origin")
    first, second, third = await published(origin, sides)
    node = await start("node", origin.url)
    node.store.add(sides[0].folder)

    assert (await node.bring([first, first, second, second, second, third])).patches == 2


async def test_the_full_version_is_fetched_when_there_is_no_patch(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 3, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides, anchors=[2])
    node = await start("node", origin.url)
    node.store.add(sides[1].folder)

    assert await node.bring(lineage) == Patched()
    assert contents(await node.fetch(lineage)) == contents(sides[2].folder)


async def test_no_patch_is_asked_for_when_no_version_is_here(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2, SMALL)
    origin = await start("origin")
    lineage = await published(origin, sides)
    node = await start("node", origin.url)

    assert contents(await node.fetch(lineage)) == contents(sides[1].folder)
    assert not any("patches" in path for path in origin.sent)


async def test_a_patch_is_left_alone_when_it_is_no_cheaper(tmp_path: Path, start: Start) -> None:
    """Of the two chunks, one is here already: the other is hardly larger than the patch, which carries most of it."""
    base, target = weights(2 << 20), weights(SMALL, seed=5)
    sides = [side(tmp_path / "0", a=base, b=weights(SMALL)), side(tmp_path / "1", a=weights(2 << 20, 6), b=target)]
    origin, node = await start("origin"), await start("node")
    node.patching.downloader.sources = lambda: [origin.url]
    lineage = roots(sides)
    for each in sides:
        origin.store.add(each.folder)
    path = tmp_path / "made" / "patch"
    path.parent.mkdir()
    assert make_patch(sides[0], sides[1], path, 1 << 30, 1)
    origin.patching.index.put(Span(*lineage), origin.store.add(path.parent))
    node.store.add(sides[0].folder)

    assert await origin.patching.make(*lineage) is None
    assert await node.bring(lineage) == Patched()
    assert contents(await node.fetch(lineage)) == contents(sides[1].folder)


async def test_a_patch_that_is_not_worth_its_bytes_is_not_made(tmp_path: Path, start: Start) -> None:
    sides = [side(tmp_path / "0", a=weights(SMALL)), side(tmp_path / "1", a=weights(SMALL, seed=5))]
    origin = await start("origin")
    for each in sides:
        origin.store.add(each.folder)

    assert await origin.patching.make(*roots(sides)) is None
    assert origin.patching.index.find(Span(*roots(sides))) is None
