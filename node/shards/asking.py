"""One request to one source: what a stranger may answer, and what its answer says of it."""

import asyncio
from collections.abc import Callable

import aiohttp
from blake3 import blake3

from ledger.base import Digest
from node.errors import Malformed
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.shards.selection import Selection
from node.transport import UNREACHABLE, Timeouts, read_limited, vet_url

MAX_PROBLEM_BYTES = 4096


class Asker:
    """Asks sources by base URL. None means "not from this source, now"; why is noted in the `Selection`."""

    def __init__(
        self, session: aiohttp.ClientSession, timeouts: Timeouts, selection: Selection, now: Callable[[], float]
    ) -> None:
        self._session = session
        self._timeouts = timeouts
        self._selection = selection
        self._now = now

    async def manifest(self, source: str, root: Digest) -> Manifest | None:
        """The manifest that hashes to `root`. Raises: Malformed, if that one is over a limit: no source is to blame."""
        data = await self._get(source, f"manifests/{root.hex()}", MAX_MANIFEST_BYTES)
        if data is None:
            return None
        if blake3(data).digest() != root:
            self._selection.ban(source, f"served a manifest that is not {root.hex()}")
            return None
        return await asyncio.to_thread(Manifest.parse, data)

    async def have(self, source: str, root: Digest, chunks: int) -> bytes | None:
        """Its bitmap of the checkpoint's verified chunks (`Holding.bitmap`)."""
        length = -(-chunks // 8)
        return await self._get(source, f"have/{root.hex()}", length, exact=True)

    async def chunk(self, source: str, digest: bytes, length: int, wait_seconds: int) -> bytes | None:
        """`length` bytes that it gives out as chunk `digest`; whether they are is not looked at here."""
        return await self._get(source, f"chunks/{digest.hex()}", length, exact=True, wait_seconds=wait_seconds)

    async def _get(
        self, source: str, path: str, limit: int, *, exact: bool = False, wait_seconds: int = 0
    ) -> bytes | None:
        timeout = self._timeouts.client(wait_seconds)
        query = {"wait": str(wait_seconds)} if wait_seconds else None
        try:
            # Private addresses are the session's to refuse, after resolution.
            url = vet_url(source, allow_private=True) / "v1" / path
            started = self._now()
            async with self._session.get(url, params=query, timeout=timeout) as response:
                if response.status == 404:
                    await read_limited(response, MAX_PROBLEM_BYTES)
                    self._selection.lacks(source)
                    return None
                _require_acceptable(response, limit, exact)
                if wait_seconds:  # that it waited for the chunk itself says nothing of its bandwidth
                    started = self._now()
                data = await read_limited(response, limit)
                self._selection.succeeded(source, len(data), self._now() - started)
                return data
        except (Malformed, ValueError, *UNREACHABLE) as error:  # ValueError: of names and heads that nobody can read
            self._selection.failed(source, f"{type(error).__name__}: {error}")
            return None


def _require_acceptable(response: aiohttp.ClientResponse, limit: int, exact: bool) -> None:
    """An answer announces its length, so that one broken off is told from a wrong one, and endless ones never begin."""
    length = response.content_length
    if response.status != 200:
        raise Malformed(f"status {response.status}")
    if length is None or length > limit or (exact and length != limit):
        raise Malformed(f"a body of {length} bytes where {'' if exact else 'at most '}{limit} were expected")
