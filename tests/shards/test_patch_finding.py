"""Whose patch is taken, and what it costs where strangers name one that never comes whole; through real sockets."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from ledger.base import Digest
from node.errors import NotFound
from node.shards.manifest import build
from node.shards.patch_finding import Candidate, Named, PatchFinder
from node.shards.patch_index import PatchIndex, Span
from node.shards.patch_making import make_patch
from node.shards.server import add_routes
from node.shards.store import CheckpointStore
from node.transport import make_app, serve
from node.transport.connections import Connections
from tests.clocks import HandClock
from tests.shards.checkpoints import checkpoint, flip_unnoticed
from tests.shards.sources import GENEROUS, answering, downloader
from tests.shards.versions import versions

MOST = 1 << 30  # bytes that a patch may have


@dataclass
class Setting:
    """A span, the patch that makes it, and a node that looks for it; it has both manifests."""

    span: Span
    patch: Path
    finder: PatchFinder
    trusted: list[str] = field(default_factory=list)
    maker: str | None = None

    async def candidates(self, seconds: float = 5.0) -> list[Candidate]:
        with self.finder.index.expecting() as expected:
            return await self.finder.candidates(self.span, time.monotonic() + seconds, expected)

    async def fetch(self, candidates: Sequence[Candidate], seconds: float) -> Digest:
        until = time.monotonic() + seconds
        return (await self.finder.fetch(self.span, candidates, MOST, until)).candidate.root


@pytest.fixture
def setting(tmp_path: Path, http: Connections) -> Setting:
    sides = versions(tmp_path, 2, 40_000)
    span = Span(*(each.manifest.root for each in sides))
    patch = checkpoint(tmp_path / "patch", patch=b"")
    make_patch(sides[0], sides[1], patch / "patch", MOST, 1)
    client = downloader(tmp_path / "node", http, [])
    for each in sides:
        client.store.add(each.folder)
    finder = PatchFinder(client, PatchIndex(tmp_path / "index"), lambda: Named(made.trusted, made.maker))
    made = Setting(span, patch, finder)
    return made


@dataclass
class Namer:
    """A source that names `root`, and counts who asked; of its chunks it never ends one."""

    root: Digest
    manifest: bytes
    chunks: int
    seconds: float = 0.0  # before it names it
    asked: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["path"].split("/")[1]
        if kind == "patches":
            self.asked += 1
            await asyncio.sleep(self.seconds)
            return web.Response(body=self.root)
        if kind == "manifests":
            return web.Response(body=self.manifest)
        if kind == "have":
            return web.Response(body=bytes([(1 << self.chunks) - 1]))
        response = web.StreamResponse()
        response.content_length = 1 << 10
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.1)


def dripping(folder: Path, seconds: float = 0.0) -> Namer:
    manifest = build(checkpoint(folder, patch=bytes(1 << 10)))
    return Namer(manifest.root, manifest.encode(), manifest.chunks, seconds)


async def honest(servers: AsyncExitStack, folder: Path, setting: Setting) -> str:
    """Has the patch, and names it."""
    store = CheckpointStore(folder)
    root = store.add(setting.patch)

    async def name(_: web.Request) -> web.Response:
        return web.Response(body=root)

    app = make_app(1000, GENEROUS)
    add_routes(app, store)
    app.router.add_get("/v1/patches/{target}", name)
    runner, port = await serve(app, "127.0.0.1", 0)
    servers.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{port}"


async def test_nobody_is_banned_for_a_patch_that_changed_on_this_disk(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    url = await honest(servers, tmp_path / "trainer", setting)
    setting.finder.downloader.sources = lambda: [url]
    (named,) = await setting.candidates()
    assert await setting.fetch([named], 5.0) == named.root
    flip_unnoticed(tmp_path / "node" / "checkpoints" / named.root.hex() / "patch", 0)

    with pytest.raises(NotFound, match="has changed on this disk"):
        await setting.fetch([named], 5.0)

    assert not setting.finder.downloader.selection.banned


@pytest.mark.parametrize(
    ("missing", "measured", "seconds"),
    [
        (62_000_000_000, [], 124.0),  # a quarter of 496 s at 125 MB/s
        (62_000_000_000, [520_000.0, 90_000_000.0], 124.0),  # slow sources make nobody wait longer
        (62_000_000_000, [520_000.0, 1_250_000_000.0], 12.4),
        (40_000_000, [], 5.0),
    ],
)
def test_strangers_have_a_quarter_of_the_time_that_the_full_version_takes_on_a_fast_line(
    setting: Setting, missing: int, measured: list[float], seconds: float
) -> None:
    for number, rate in enumerate(measured):
        setting.finder.downloader.selection.succeeded(f"http://{number}", 1 << 20, (1 << 20) / rate)

    setting.finder.downloader.clock = HandClock()

    assert setting.finder.strangers_until(missing) == pytest.approx(HandClock.now + seconds)


async def test_a_strangers_patch_that_drips_is_given_up_in_time_and_the_stranger_asked_for_none_afterwards(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    evil = dripping(tmp_path / "evil")
    url = await answering(servers, evil.answer)
    setting.finder.downloader.sources = lambda: [url]
    (named,) = await setting.candidates()
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        await setting.fetch([named], 0.5)

    assert named == Candidate(evil.root, (url,)) and time.monotonic() - began < 1.5
    assert await setting.candidates() == []
    assert evil.asked == 1
    assert not setting.finder.downloader.selection.banned  # it may just be slow


async def test_what_one_names_whom_the_run_names_goes_before_what_several_strangers_do(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    evil = dripping(tmp_path / "evil")
    strangers = [await answering(servers, evil.answer) for _ in range(3)]
    trainer = await honest(servers, tmp_path / "trainer", setting)
    setting.finder.downloader.sources = lambda: [*strangers, trainer]
    setting.trusted.append(trainer)

    named = await setting.candidates()

    assert named[0] == Candidate(build(setting.patch).root, (trainer,), trusted=True)
    assert await setting.fetch(named, 0.0) == named[0].root  # the limit is the strangers'


async def test_one_whom_the_run_names_is_asked_and_waited_for_however_many_strangers_are_faster(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    strangers = [await answering(servers, dripping(tmp_path / "evil").answer)] * 20
    late = dripping(tmp_path / "late", seconds=1.5)  # later than strangers are waited for
    trainer = await answering(servers, late.answer)
    setting.finder.downloader.sources = lambda: [*(f"{each}/{n}" for n, each in enumerate(strangers)), trainer]
    setting.trusted.append(trainer)

    assert (await setting.candidates(1.0))[0] == Candidate(late.root, (trainer,), trusted=True)


async def test_an_honest_strangers_patch_has_its_time_when_more_strangers_named_another(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    evil = dripping(tmp_path / "evil")
    strangers = [await answering(servers, evil.answer) for _ in range(2)]
    other = await honest(servers, tmp_path / "honest", setting)
    setting.finder.downloader.sources = lambda: [*strangers, other]
    named = await setting.candidates()

    assert [each.root for each in named] == [evil.root, build(setting.patch).root]
    assert await setting.fetch(named, 1.2) == named[1].root


async def test_a_stranger_that_stalls_is_not_waited_for_when_those_whom_the_run_names_have_answered(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    async def nothing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    trainer, stalling = await answering(servers, nothing), dripping(tmp_path / "stalling", seconds=3)
    url = await answering(servers, stalling.answer)
    setting.finder.downloader.sources = lambda: [trainer, url]
    setting.trusted.append(trainer)
    began = time.monotonic()

    assert await setting.candidates(20.0) == []
    assert time.monotonic() - began < 2.5


async def test_strangers_count_for_nothing_and_cost_nothing_when_the_maker_says_that_there_is_no_patch(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    async def nothing(_: web.Request) -> web.Response:
        await asyncio.sleep(0.3)  # later than the first of the strangers
        return web.Response(status=404)

    setting.maker = await answering(servers, nothing)
    setting.trusted.append(setting.maker)
    naming, stalling = dripping(tmp_path / "naming"), dripping(tmp_path / "stalling", seconds=3)
    others = [await answering(servers, each.answer) for each in (naming, stalling)]
    setting.finder.downloader.sources = lambda: [*others, setting.maker or ""]
    began = time.monotonic()

    assert await setting.candidates(20.0) == []
    assert naming.asked == stalling.asked == 1
    assert time.monotonic() - began < 1  # the grace of others


async def test_what_another_names_whom_the_run_names_is_taken_though_the_maker_has_forgotten_it(
    tmp_path: Path, servers: AsyncExitStack, setting: Setting
) -> None:
    async def nothing(_: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.Response(status=404)

    relay, setting.maker = await honest(servers, tmp_path / "relay", setting), await answering(servers, nothing)
    setting.trusted += [relay, setting.maker]
    setting.finder.downloader.sources = lambda: setting.trusted

    assert await setting.candidates() == [Candidate(build(setting.patch).root, (relay,), trusted=True)]
