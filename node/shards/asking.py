"""One request to one source: what a stranger may answer, and what its answer says of it."""

import asyncio
from collections.abc import Callable, Mapping
from mmap import mmap
from types import MappingProxyType
from typing import NamedTuple

from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.shards.selection import Selection
from node.transport import Timeouts, vet_url
from node.transport.connections import Connections
from node.transport.receiving import Answer, Arriving


class Word(NamedTuple):
    """What a source says of a patch: its root, or, where it `said` so, that it has none now."""

    root: Digest | None
    said: bool


class Asker:
    """Asks sources by base URL. None means "not from this source, now"; why is noted in the `Selection`."""

    def __init__(
        self, connections: Connections, timeouts: Timeouts, selection: Selection, now: Callable[[], float]
    ) -> None:
        self._connections = connections
        self._timeouts = timeouts
        self._selection = selection
        self._now = now

    async def manifest(self, source: str, root: Digest, wait_seconds: int = 0) -> Manifest | None:
        """The manifest that hashes to `root`. Raises: Malformed, if that one is over a limit: no source is to blame."""
        room = memoryview(mmap(-1, MAX_MANIFEST_BYTES))  # of which what is not written to takes no memory
        data = await self._get(source, f"manifests/{root.hex()}", room, wait_seconds=wait_seconds)
        if data is None:
            return None
        if blake3(data).digest() != root:
            self._selection.ban(source, f"served a manifest that is not {root.hex()}")
            return None
        return await asyncio.to_thread(Manifest.parse, bytes(data))

    async def have(self, source: str, root: Digest, chunks: int) -> bytes | None:
        """Its bitmap of the checkpoint's verified chunks."""
        room = memoryview(bytearray(-(-chunks // 8)))
        bitmap = await self._get(source, f"have/{root.hex()}", room, exact=True)
        return None if bitmap is None else bytes(bitmap)

    async def chunk(self, source: str, digest: bytes, into: memoryview, wait_seconds: int, arriving: Arriving) -> bool:
        """Fills `into` with what it gives out as chunk `digest`; whether it is that is not looked at here."""
        path = f"chunks/{digest.hex()}"
        data = await self._get(source, path, into, exact=True, wait_seconds=wait_seconds, arriving=arriving)
        return data is not None

    async def patch(self, source: str, target: Digest, base: Digest, wait_seconds: int) -> Word:
        """Of the patch that makes `target` of `base`."""
        room, query = memoryview(bytearray(32)), {"from": base.hex()}
        path = f"patches/{target.hex()}"
        answer = await self._answer(source, path, room, exact=True, wait_seconds=wait_seconds, query=query)
        if answer is None or answer.status not in (200, 404):
            return Word(None, said=False)
        return Word(Digest(bytes(answer.body)) if answer.status == 200 else None, said=True)

    async def _get(
        self,
        source: str,
        path: str,
        into: memoryview,
        *,
        exact: bool = False,
        wait_seconds: int = 0,
        arriving: Arriving | None = None,
    ) -> memoryview | None:
        asked = self._now()
        answer = await self._answer(source, path, into, exact=exact, wait_seconds=wait_seconds, arriving=arriving)
        if answer is not None and answer.status == 404:
            self._selection.lacks(source, self._now() - asked)
        return answer.body if answer is not None and answer.status == 200 else None

    async def _answer(
        self,
        source: str,
        path: str,
        into: memoryview,
        *,
        exact: bool,
        wait_seconds: int,
        query: Mapping[str, str] = MappingProxyType({}),
        arriving: Arriving | None = None,
    ) -> Answer | None:
        """None where it gave none; what that, or its status, says of it is noted, but for one of 404."""
        asked = self._now()
        try:
            # Private addresses are refused after resolution, by the connections.
            wait = {"wait": str(wait_seconds)} if wait_seconds else {}
            url = (vet_url(source, allow_private=True) / "v1" / path).with_query({**query, **wait})
            answer = await self._connections.get(
                url, into, exact=exact, wait_seconds=wait_seconds, timeouts=self._timeouts, arriving=arriving
            )
        except (Malformed, ValueError, OSError) as error:  # ValueError: of names that nobody can read
            self._selection.failed(source, str(error) or "no answer in time")
            return None
        if answer.status == 200:
            # That it waited for the chunk itself says nothing of its bandwidth.
            seconds = answer.seconds if wait_seconds else self._now() - asked
            self._selection.succeeded(source, len(answer.body), seconds)
        elif answer.status == 403:
            self._selection.declined(source)
        elif answer.status != 404:
            self._selection.failed(source, f"status {answer.status}")
        return answer
