"""Versions by patches through real sockets: from who made them, from who applied them, from liars, and without any."""

import asyncio
import logging
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from ledger.base import Digest
from node.shards.manifest import build
from node.shards.patch_index import PatchIndex, Span
from node.shards.patch_making import make_patch
from node.shards.patch_route import add_patch_route
from node.shards.patch_sides import Side
from node.shards.patch_words import compress
from node.shards.patching import Patched, Patching
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import make_app, serve
from node.transport.connections import Connections
from tests.roles.stage import until
from tests.shards.checkpoints import checkpoint, flip_unnoticed
from tests.shards.sources import GENEROUS, QUICK, Handler, answering, contents, downloader
from tests.shards.versions import side, trained, versions, weights

SMALL = 40_000  # words


@dataclass
class Node:
    """A node with a store, what it asks, and what it has sent so far, by path."""

    patching: Patching
    store: CheckpointStore
    url: str
    sent: dict[str, int]
    asked: list[str]

    async def bring(self, lineage: Sequence[Digest]) -> Patched:
        return await self.patching.bring(lineage[-1], lineage)

    async def fetch(self, lineage: Sequence[Digest]) -> Path:
        await self.bring(lineage)
        return await self.patching.downloader.fetch(lineage[-1])

    @property
    def sent_bytes(self) -> int:
        return sum(self.sent.values())


Start = Callable[..., Awaitable[Node]]


@pytest.fixture
def start(tmp_path: Path, servers: AsyncExitStack, http: Connections) -> Start:
    """start(name, sources): a node that serves what it has."""

    async def started(name: str, *sources: str) -> Node:
        client = downloader(tmp_path / name, http, sources)
        patching = Patching(client, PatchIndex(tmp_path / name / "patches"))
        app = make_app(1000, GENEROUS)
        sent: dict[str, int] = {}
        asked: list[str] = []

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            asked.append(request.path)
            return await handler(request)

        async def count(request: web.Request, response: web.StreamResponse) -> None:
            sent[request.path] = sent.get(request.path, 0) + (response.content_length or 0)

        app.middlewares.append(note)
        app.on_response_prepare.append(count)
        add_routes(app, client.store)
        add_patch_route(app, patching.index)
        runner, port = await serve(app, "127.0.0.1", 0)
        servers.push_async_callback(runner.cleanup)
        return Node(patching, client.store, f"http://127.0.0.1:{port}", sent, asked)

    return started


def roots(sides: Sequence[Side]) -> list[Digest]:
    return [each.manifest.root for each in sides]


async def published(origin: Node, sides: Sequence[Side], anchors: Sequence[int] = ()) -> list[Digest]:
    """Has the origin publish the versions, each with its patch but for `anchors`."""
    for number, each in enumerate(sides):
        origin.store.add(each.folder)
        if number and number not in anchors:
            assert await origin.patching.make(sides[number - 1].manifest.root, each.manifest.root)
    return roots(sides)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record for record in caplog.records if record.levelno == logging.WARNING and hasattr(record, "fields")]
    return [str(record.fields["reason"]) for record in said]


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


async def test_a_child_waits_for_a_parent_that_is_fetching_the_patch_itself(tmp_path: Path, start: Start) -> None:
    sides = versions(tmp_path, 2, SMALL)
    origin = await start("origin")
    relay = await start("relay", origin.url)
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


# --- Liars, and what is lost


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


# --- Kills

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
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "node"), origin.url, *hexed(lineage)]
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


def hexed(lineage: Sequence[Digest]) -> list[str]:
    return [root.hex() for root in lineage]


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


# --- The question


@pytest.mark.parametrize(
    "query",
    [
        "", "?from=", "?from=xyz", "?from={base}&wait=31", "?from={base}&wait=-1", "?from={base}&more=1",
        "?from={base}&from={base}", "?wait=1", "?from={base}&wait=1&wait=1",
    ],
)  # fmt: skip
async def test_odd_questions_for_a_patch_are_refused(start: Start, query: str) -> None:
    node = await start("node")
    url = f"{node.url}/v1/patches/{'0' * 64}" + query.format(base="1" * 64)

    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 400


@pytest.mark.parametrize("target", ["0", "A" * 64, "0" * 65])
async def test_odd_names_of_versions_are_refused(start: Start, target: str) -> None:
    node = await start("node")

    async with aiohttp.ClientSession() as session:
        async with session.get(f"{node.url}/v1/patches/{target}?from={'1' * 64}") as response:
            assert response.status == 400
        async with session.get(f"{node.url}/v1/patches/{'0' * 64}?from={'1' * 64}&wait=30") as response:
            assert response.status == 404  # at once: nobody makes it here
