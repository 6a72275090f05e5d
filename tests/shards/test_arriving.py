"""What is said of a download while its chunks are still on their way; through real sockets."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from node.shards.manifest import CHUNK_BYTES
from node.shards.store import CheckpointStore
from node.transport.connections import Connections
from tests.shards.checkpoints import checkpoint
from tests.shards.sources import QUICK, answering, downloader, truth

OFTEN = replace(QUICK, watch_seconds=0.02, parallel=1)
PIECES = 16
Seen = list[tuple[int, int]]


class Slow:
    """A source of one chunk: of each answer in `bad` it sends a part, then breaks off or sends other bytes."""

    def __init__(self, folder: Path, *bad: str) -> None:
        self.store = CheckpointStore(folder / "origin")
        self.data = bytes(range(256)) * (CHUNK_BYTES // 256)
        self.root = self.store.add(checkpoint(folder / "source", weights=self.data))
        self.bad = list(bad)
        self.sent = 0  # pieces of the last answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind, name = request.match_info["path"].split("/")[1:]
        if kind != "chunks":
            return web.Response(body=truth(self.store, kind, name))  # type: ignore[arg-type]
        how, self.sent = self.bad.pop(0) if self.bad else "", 0
        response = web.StreamResponse()
        response.content_length = CHUNK_BYTES
        await response.prepare(request)
        for place in range(0, CHUNK_BYTES, CHUNK_BYTES // PIECES):
            piece = self.data[place : place + CHUNK_BYTES // PIECES]
            await response.write(bytes(len(piece)) if how == "wrong" else piece)
            self.sent += 1
            await asyncio.sleep(0.06)
            if how == "broken off" and self.sent == PIECES // 2:
                assert request.transport is not None
                request.transport.abort()
        return response


async def seen_of(slow: Slow, servers: AsyncExitStack, http: Connections, folder: Path) -> Seen:
    seen: Seen = []
    urls = [await answering(servers, slow.answer)]
    if slow.bad == ["wrong"]:
        urls.append(await answering(servers, slow.answer))  # the first to answer is banned
    client = downloader(folder / "leaf", http, urls, OFTEN)
    await client.fetch(slow.root, lambda here, in_all: seen.append((here, in_all)))
    return seen


async def test_bytes_are_counted_as_they_arrive_and_not_when_their_chunk_is_whole(
    tmp_path: Path, servers: AsyncExitStack, http: Connections
) -> None:
    seen = await seen_of(Slow(tmp_path), servers, http, tmp_path)

    here = [each for each, _ in seen]
    assert here[0] == 0 and here[-1] == CHUNK_BYTES and here == sorted(set(here))
    assert {total for _, total in seen} == {CHUNK_BYTES}
    assert len(here) > PIECES // 2  # of its sixteen pieces some may come together
    assert max(later - sooner for sooner, later in pairwise(here)) < CHUNK_BYTES // 2


@pytest.mark.parametrize("how", ["broken off", "wrong"])
async def test_what_breaks_off_or_turns_out_wrong_is_taken_back_and_the_end_is_exact(
    tmp_path: Path, servers: AsyncExitStack, http: Connections, how: str
) -> None:
    seen = await seen_of(Slow(tmp_path, how), servers, http, tmp_path)

    here = [each for each, _ in seen]
    back = next(place for place, (sooner, later) in enumerate(pairwise(here)) if later < sooner)
    assert here[back] >= CHUNK_BYTES // 4 and here[back + 1] <= CHUNK_BYTES // 4
    assert here[-1] == CHUNK_BYTES and max(here) <= CHUNK_BYTES
