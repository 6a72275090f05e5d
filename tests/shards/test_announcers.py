"""Bans of those whose URLs lied, whatever URL they announce next."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from ledger.base import Address
from node.bans import Bans
from node.shards.announcers import BLAMED_SECONDS, MAX_ANNOUNCED, Announcers
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.sources import QUICK, answering, contents, downloader, serving, truth

ONE, OTHER = (Address(f"0x{number:040x}") for number in (1, 2))


def test_whoever_had_a_url_that_lied_is_left_out_with_any_other(tmp_path: Path) -> None:
    announcers = Announcers(Bans(tmp_path / "banned"), lambda: 0.0)
    assert announcers.urls([(ONE, "http://a/1"), (OTHER, "http://a/2"), (OTHER, "http://a/1")]) == (
        "http://a/1",
        "http://a/2",
    )
    announcers.urls([(ONE, "http://a/3"), (OTHER, "http://b")])  # both are elsewhere when the first answer is looked at

    announcers.ban("http://a/2", "served a wrong chunk")

    assert announcers.urls([(ONE, "http://a/4"), (OTHER, "http://b")]) == ("http://a/4",)
    after = Announcers(Bans(tmp_path / "banned"), lambda: 0.0)
    assert after.urls([(OTHER, "http://c"), (ONE, "http://a/4")]) == ("http://a/4",)


def test_nobody_is_blamed_for_a_url_that_it_had_long_ago() -> None:
    now = [0.0]
    announcers = Announcers(Bans(), lambda: now[0])
    announcers.urls([(ONE, "http://a")])
    now[0] = BLAMED_SECONDS + 1
    announcers.urls([(ONE, "http://b")])

    announcers.ban("http://a", "somebody else is there now")

    assert announcers.urls([(ONE, "http://b")]) == ("http://b",)


def test_only_so_many_urls_are_remembered() -> None:
    announcers = Announcers(Bans(), lambda: 0.0)
    announcers.urls((ONE, f"http://a/{number}") for number in range(MAX_ANNOUNCED + 1))

    announcers.ban("http://a/0", "forgotten")
    assert announcers.urls([(ONE, "http://b")]) == ("http://b",)
    announcers.ban("http://a/2", "not forgotten")
    assert announcers.urls([(ONE, "http://b")]) == ()


async def test_a_liar_that_moves_with_every_lie_has_lied_once(
    source: Path, tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    origin = CheckpointStore(tmp_path / "origin")
    root = origin.add(source)
    lies, announced = list[str](), dict[Address, str]()

    async def lie(request: web.Request) -> web.StreamResponse:
        *_, kind, name = request.match_info["path"].split("/")
        if kind in {"manifests", "have"}:
            return web.Response(body=truth(origin, kind, name))  # type: ignore[arg-type]
        lies.append(name)
        announced[ONE] = f"{base}/x{len(lies)}"
        announced[OTHER] = honest  # who is known only now: which of two is asked first is drawn
        _, _, length = origin.vouch(bytes.fromhex(name)) or (source, 0, 0)
        return web.Response(body=bytes(length))

    honest, base = await serving(servers, origin), await answering(servers, lie)
    announced[ONE] = base
    client = downloader(tmp_path / "leaf", http, [], replace(QUICK, parallel=1))
    client.sources = lambda: client.selection.of_nodes(announced.items())

    folder = await client.fetch(root)

    assert contents(folder) == contents(source)
    assert len(lies) == 1
    assert set(client.selection.banned) == {base, ONE}
