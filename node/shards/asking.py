"""One request to one source: what a stranger may answer, and what its answer says of it."""

import asyncio
from collections.abc import Callable, Mapping
from mmap import mmap
from types import MappingProxyType

from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.shards.selection import Selection
from node.transport import Timeouts, vet_url
from node.transport.connections import Connections
from node.transport.receiving import Arriving


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

    async def patch(self, source: str, target: Digest, base: Digest, wait_seconds: int) -> Digest | None:
        """The root of the patch that it says makes `target` of `base`."""
        room, query = memoryview(bytearray(32)), {"from": base.hex()}
        path = f"patches/{target.hex()}"
        root = await self._get(source, path, room, exact=True, wait_seconds=wait_seconds, query=query)
        return None if root is None else Digest(bytes(root))

    async def _get(
        self,
        source: str,
        path: str,
        into: memoryview,
        *,
        exact: bool = False,
        wait_seconds: int = 0,
        query: Mapping[str, str] = MappingProxyType({}),
        arriving: Arriving | None = None,
    ) -> memoryview | None:
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
            return answer.body
        if answer.status == 404:
            self._selection.lacks(source, self._now() - asked)
        elif answer.status == 403:
            self._selection.declined(source)
        else:
            self._selection.failed(source, f"status {answer.status}")
        return None
