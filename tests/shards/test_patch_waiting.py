"""Who waits for a patch that is not there yet, and how long: nodes that ask each other, through real sockets."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.base import Digest
from node.shards.patch_finding import WAIT_SECONDS, Named
from node.shards.patch_index import Span
from node.shards.patching import Patched
from tests.roles.stage import until
from tests.shards.patchers import SMALL, Node, Start, roots
from tests.shards.versions import versions

SOON = WAIT_SECONDS / 3  # seconds, on however slow a machine


class Net:
    """An origin without a patch, and nodes that ask it and each other; the run names them all."""

    def __init__(self, nodes: Sequence[Node], origin: Node, lineage: Sequence[Digest]) -> None:
        self.nodes, self.origin, self.lineage = nodes, origin, lineage

    async def bring(self) -> list[Patched]:
        return await asyncio.gather(*(node.bring(self.lineage) for node in self.nodes))

    def asked(self, node: Node) -> int:
        return sum("/patches/" in path for path in node.asked)


async def net_of(start: Start, folder: Path, maker: str | None, count: int = 3) -> Net:
    """`maker`: the origin's URL where that is None. Nobody else is asked for the weights' manifests."""
    sides = versions(folder, 2, SMALL)
    origin = await start("origin")
    urls = [origin.url]
    named = Named(urls, origin.url if maker is None else maker or None, first_hand=True)
    nodes = [await start(f"node{number}", named=named) for number in range(count)]
    urls += [maker] if maker else []
    urls += [node.url for node in nodes]
    for node in (origin, *nodes):
        node.store.add(sides[0].folder)
    origin.store.add(sides[1].folder)
    for node in nodes:
        node.store.remember(sides[1].manifest)
        node.patching.downloader.sources = lambda me=node.url: [url for url in urls if url != me]  # type: ignore[misc]
    return Net(nodes, origin, roots(sides))


@pytest.mark.parametrize("maker", [None, "", "http://127.0.0.1:1"], ids=["says none", "not known", "down"])
async def test_nodes_that_ask_each_other_do_not_wait_when_nobody_makes_a_patch(
    tmp_path: Path, start: Start, maker: str | None
) -> None:
    net = await net_of(start, tmp_path, maker)
    began = time.monotonic()

    assert await net.bring() == [Patched()] * 3

    assert time.monotonic() - began < SOON
    assert net.asked(net.origin) == 3


async def test_all_stop_waiting_at_once_when_the_maker_says_late_that_it_makes_none(
    tmp_path: Path, start: Start
) -> None:
    net = await net_of(start, tmp_path, None)
    leaf = await start("leaf", net.nodes[0].url)  # which knows of one relay alone
    leaf.store.add(tmp_path / "v0")
    with net.origin.patching.index.expecting([Span(*net.lineage)]):
        bringing = asyncio.gather(net.bring(), leaf.bring(net.lineage))
        await until(lambda: net.asked(net.origin) == 3 and "/v1/patches" in str(net.nodes[0].asked))
        await asyncio.sleep(0.3)
        assert not bringing.done()
    ended = time.monotonic()

    assert await bringing == [[Patched()] * 3, Patched()]
    assert time.monotonic() - ended < SOON


async def test_nobody_waits_for_a_node_that_fetches_what_a_stranger_named(tmp_path: Path, start: Start) -> None:
    net = await net_of(start, tmp_path, "", count=1)
    (relay,) = net.nodes
    stranger = await start("stranger")
    stranger.patching.index.put(Span(*net.lineage), Digest(bytes(32)))  # which nobody has
    relay.patching.downloader.sources = lambda: [stranger.url, net.origin.url]
    bringing = asyncio.create_task(relay.bring(net.lineage))
    await until(lambda: "/v1/manifests/" + "00" * 32 in stranger.asked, "the relay fetches it")

    began = time.monotonic()
    assert await relay.patching.index.wait_for(Span(*net.lineage), WAIT_SECONDS) is None
    assert time.monotonic() - began < SOON
    assert not bringing.done()
    bringing.cancel()
    await asyncio.gather(bringing, return_exceptions=True)
