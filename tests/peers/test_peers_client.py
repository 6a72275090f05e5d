"""Asking peers that answer badly, too much, too slowly, or not at all."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from aiohttp import web

from ledger.base import Digest, RunId
from node.errors import Malformed, NotFound
from node.peers import client as client_module
from node.peers.client import PeerClient
from node.transport import Timeouts, Uplink, session
from node.transport.places import Places

ABOUT = Digest(b"\x01" * 32)
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def peers() -> AsyncIterator[PeerClient]:
    async with session(allow_private=True) as http:
        yield PeerClient(http, Timeouts(1.0, 0.3, 0.6), Timeouts(1.0, 0.3, 0.6))


@pytest.fixture
async def answering() -> AsyncIterator[Callable[[Answering], Awaitable[str]]]:
    """answering(handler): the URL of a server that answers everything so."""
    runners: list[web.AppRunner] = []

    async def started(handler: Answering) -> str:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield started
    for runner in runners:
        await runner.cleanup()


def always(status: int, body: bytes = b"", **headers: str) -> Answering:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return answer


def posted(take: Answering) -> Answering:
    """As `take`, of what is handed over; anything else is not here."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await take(request) if request.method == "POST" else web.Response(status=404)

    return answer


@contextmanager
def silent(port: int = 0) -> Iterator[str]:
    """The URL of a machine that is down: nothing answers, not even that nobody listens there."""
    with ExitStack() as kept:
        full = kept.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind(("127.0.0.1", port))
        full.listen(0)
        for _ in range(4):  # nobody accepts them: the system drops what comes after
            waiting = kept.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


async def every_question(peers: PeerClient, url: str) -> list[type[Exception] | None]:
    """How each question ends."""
    questions = [
        peers.push_submission(url, ABOUT, b"x"), peers.submission(url, ABOUT, 100), peers.push_verdicts(url, ABOUT, []),
        peers.verdicts(url, ABOUT), peers.propose(url, RunId(1), [ABOUT]), peers.batch(url, ABOUT),
        peers.evidence(url, ABOUT, 100), peers.manifest(url, ABOUT, 100), peers.have(url, ABOUT),
    ]  # fmt: skip
    ends = await asyncio.gather(*questions, return_exceptions=True)
    return [type(end) if isinstance(end, Exception) else None for end in ends]


@pytest.mark.parametrize("status", [404, 408, 409, 425, 429, 500, 502, 503])
async def test_asking_again_can_help_when_the_peer_says_so(
    peers: PeerClient, answering: Callable[[Answering], Awaitable[str]], status: int
) -> None:
    assert await every_question(peers, await answering(always(status))) == [NotFound] * 9


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
async def test_asking_again_cannot_help_when_the_peer_refuses(
    peers: PeerClient, answering: Callable[[Answering], Awaitable[str]], status: int
) -> None:
    url = await answering(always(status, b"no\x1b[2J" * 10_000))
    assert await every_question(peers, url) == [Malformed] * 9
    with pytest.raises(Malformed) as caught:
        await peers.verdicts(url, ABOUT)
    assert len(str(caught.value)) < 500


async def test_redirects_are_not_followed(peers: PeerClient, answering: Callable[[Answering], Awaitable[str]]) -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/secret"})

    assert await every_question(peers, await answering(elsewhere)) == [NotFound] * 9
    assert "/secret" not in asked


async def test_a_web_page_is_no_answer(peers: PeerClient, answering: Callable[[Answering], Awaitable[str]]) -> None:
    url = await answering(always(200, b"<html>welcome</html>"))
    for question in (peers.verdicts(url, ABOUT), peers.propose(url, RunId(1), [ABOUT]), peers.batch(url, ABOUT)):
        with pytest.raises(Malformed):
            await question
    assert await peers.submission(url, ABOUT, 100) == b"<html>welcome</html>"  # its root is for the caller to check


async def test_an_answer_over_the_limit_is_cut_off(
    peers: PeerClient, answering: Callable[[Answering], Awaitable[str]]
) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 1 << 28:
            sent += 1 << 16
            await response.write(bytes(1 << 16))
        return response

    url = await answering(endless)
    with pytest.raises(Malformed, match="over 100 bytes"):
        await peers.submission(url, ABOUT, 100)
    with pytest.raises(Malformed, match="over 1048576 bytes"):
        await peers.verdicts(url, ABOUT)
    assert sent < 1 << 26

    announced = await answering(always(200, b"x" * 101))
    with pytest.raises(Malformed, match="body of 101 bytes, at most 100"):
        await peers.evidence(announced, ABOUT, 100)


async def test_a_peer_that_stalls_or_drips_is_left(
    peers: PeerClient, answering: Callable[[Answering], Awaitable[str]]
) -> None:
    async def stall(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    for handler in (stall, drip):
        url = await answering(handler)
        with pytest.raises(NotFound, match="does not answer"):
            await peers.verdicts(url, ABOUT)


async def test_what_is_no_http_is_no_answer(peers: PeerClient) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(NotFound):
        await peers.verdicts(f"http://127.0.0.1:{port}", ABOUT)
    server.close()
    await server.wait_closed()
    with pytest.raises(NotFound):
        await peers.verdicts(f"http://127.0.0.1:{port}", ABOUT)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a", "file:///etc/passwd", "http://", "http://a:b@c", "http://a?x=", "http://a#", "x:1", "x" * 300],
)
async def test_an_endpoint_that_is_no_address_is_malformed(peers: PeerClient, url: str) -> None:
    with pytest.raises((Malformed, NotFound)):
        await peers.verdicts(url, ABOUT)


async def test_private_addresses_are_not_reached_outside_local_networks(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    asked: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response()

    url = await answering(note)
    async with session(allow_private=False) as http:
        for base in (url, url.replace("127.0.0.1", "localhost")):
            with pytest.raises(NotFound):
                await PeerClient(http).verdicts(base, ABOUT)
    assert asked == []


def test_small_questions_are_given_up_sooner_than_files() -> None:
    assert client_module.QUICK.total_seconds < client_module.BULK.total_seconds


async def test_a_file_that_is_sent_in_pieces_arrives_whole_with_its_size_told_first_and_progress(
    peers: PeerClient, answering: Callable[[Answering], Awaitable[str]]
) -> None:
    data = bytes(range(256)) * 2600  # 665,600 bytes: three pieces
    seen: list[tuple[str | None, bytes]] = []
    steps: list[tuple[int, int]] = []

    async def take(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers.get("Content-Length"), await request.read()))
        return web.Response(status=204)

    url = await answering(take)
    await peers.push_submission(url, ABOUT, data, lambda done, total: steps.append((done, total)))

    assert seen == [("665600", data)]
    assert steps == [(262_144, 665_600), (524_288, 665_600), (665_600, 665_600)]


async def test_a_file_that_is_handed_over_keeps_to_the_upload_limit_with_all_that_is_served(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    data, taken = bytes(1_000_000), list[bool]()

    async def take(request: web.Request) -> web.StreamResponse:
        taken.append(await request.read() == data)
        return web.Response(status=204)

    url = await answering(posted(take))
    async with session(allow_private=True) as http:
        peers, began = PeerClient(http, uplink=Uplink(4_000_000)), time.monotonic()
        await asyncio.gather(*(peers.push_submission(url, ABOUT, data) for _ in range(2)))

    assert time.monotonic() - began > 0.39  # 2 MB at 4 MB/s, of which 0.1 s may be made up for, and one piece
    assert taken == [True, True]


async def test_only_so_many_files_are_handed_over_at_once_as_get_on_and_all_arrive(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    data, taken = bytes(400_000), list[int]()
    sent, most = [0] * 5, 0  # bytes of each; how many were under way at once

    async def take(request: web.Request) -> web.StreamResponse:
        taken.append(len(await request.read()))
        return web.Response(status=204)

    def count(file: int, done: int) -> None:
        nonlocal most
        sent[file] = done
        most = max(most, sum(0 < each < len(data) for each in sent))

    urls = [await answering(posted(take)) for _ in range(5)]
    async with session(allow_private=True) as http:
        peers = PeerClient(http, uplink=Uplink(2_000_000, Places(2)))
        await asyncio.gather(
            *(
                peers.push_submission(url, ABOUT, data, lambda done, _, file=file: count(file, done))
                for file, url in enumerate(urls)
            )
        )

    assert taken == [400_000] * 5
    assert most == 2


async def test_a_file_waits_longer_for_its_place_than_a_receiver_may_take_and_is_handed_over_then(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    uplink, url = Uplink(1e6, Places(2)), await answering(always(204))
    async with session(allow_private=True) as http:
        peers = PeerClient(http, Timeouts(0.1, 0.1, 0.2), Timeouts(0.1, 0.1, 0.2), uplink)
        places = [await uplink.places.take("a") for _ in range(2)]
        pushing = [asyncio.create_task(peers.push_submission(url, ABOUT, b"x")) for _ in range(2)]
        await asyncio.wait(pushing, timeout=0.4)
        assert not any(task.done() for task in pushing)
        pushing[0].cancel()
        places.pop().give_up()
        await asyncio.wait_for(pushing[1], 5)
    assert pushing[0].cancelled()


async def test_a_receiver_that_takes_nothing_holds_no_place(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    release = asyncio.Event()

    async def stall(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(status=204)

    stalled, url = await answering(stall), await answering(always(204))
    uplink = Uplink(1e9, Places(2, stall_seconds=0.1))
    big = bytes(32 << 20)  # more than socket buffers take
    async with session(allow_private=True) as http:
        peers = PeerClient(http, uplink=uplink)
        pushing = [asyncio.create_task(peers.push_submission(stalled, ABOUT, big)) for _ in range(2)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(peers.push_submission(url, ABOUT, b"x"), 5)
        assert not any(task.done() for task in pushing)
        for task in pushing:
            task.cancel()
        await asyncio.gather(*pushing, return_exceptions=True)
        release.set()


async def test_receivers_that_are_down_keep_nobody_from_the_uplink(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    uplink, url = Uplink(1e6, Places(2, stall_seconds=60)), await answering(always(204))
    async with session(allow_private=True) as http:
        with silent() as down:
            peers = PeerClient(http, Timeouts(60, 60, 60), Timeouts(60, 60, 60), uplink)
            pushing = [asyncio.create_task(peers.push_submission(down, ABOUT, b"x")) for _ in range(2)]
            await asyncio.wait(pushing, timeout=0.1)
            await asyncio.wait_for(peers.push_submission(url, ABOUT, b"x"), 2)
            assert not any(task.done() for task in pushing)
            for task in pushing:
                task.cancel()
            await asyncio.gather(*pushing, return_exceptions=True)


async def test_a_receiver_that_went_down_while_its_file_waited_for_a_place_does_not_keep_it(
    answering: Callable[[Answering], Awaitable[str]],
) -> None:
    uplink, url = Uplink(1e6, Places(2, stall_seconds=0.1)), await answering(always(204))
    server = await asyncio.start_server(lambda _, writer: closed(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with session(allow_private=True) as http:
        peers = PeerClient(http, Timeouts(60, 60, 60), Timeouts(60, 60, 60), uplink)
        places = [await uplink.places.take("a") for _ in range(2)]
        pushing = asyncio.create_task(peers.push_submission(f"http://127.0.0.1:{port}", ABOUT, b"x"))
        await asyncio.wait([pushing], timeout=0.2)
        server.close()
        await server.wait_closed()
        with silent(port):
            places.pop().give_up()
            await asyncio.wait_for(peers.push_submission(url, ABOUT, b"x"), 2)
            assert not pushing.done()
            pushing.cancel()
            await asyncio.gather(pushing, return_exceptions=True)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Answers, and takes no second question."""
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()
