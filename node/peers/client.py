"""The asking side: one method per request that a node makes of another. What comes back is parsed with limits."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from ledger.base import Digest, RunId
from ledger.messages import SignedMessage
from node.errors import Malformed, NotFound
from node.peers.wire import (
    MAX_JSON_BYTES,
    BatchAnswer,
    SignedBatch,
    encode_proposal,
    encode_verdicts,
    parse_answer,
    parse_batch,
    parse_verdicts,
)
from node.progress import OnProgress
from node.transport import UNREACHABLE, Timeouts, Uplink, read_limited, vet_url
from node.transport.places import Lease

QUICK = Timeouts(connect_seconds=3.0, idle_seconds=5.0, total_seconds=10.0)  # for small questions: others wait
BULK = Timeouts()  # for files
PIECE_BYTES = 1 << 18  # of a file that is sent
ANYTHING = f"have/{'0' * 64}"  # which no node has: it answers 404
TRY_AGAIN = {404, 408, 409, 425, 429}  # and every 5xx: the peer may answer otherwise later


@dataclass(frozen=True, slots=True)
class PeerClient:
    """Every method raises `NotFound` where asking again can help, and `Malformed` where it cannot.

    `session` comes from `node.transport.session`, so that hostile addresses and endless answers are refused. `uplink`
    is what files that are handed over share with those that are served.
    """

    session: aiohttp.ClientSession
    quick: Timeouts = QUICK
    bulk: Timeouts = BULK
    uplink: Uplink = field(default_factory=Uplink)

    async def push_submission(
        self, url: str, commitment: Digest, data: bytes, progress: OnProgress = lambda done, total: None
    ) -> None:
        """Hands a rollout file to a validator or the trainer; `progress` gets bytes (sent, in all).

        However long it waits for its place in the uplink: the receiver's time begins when the first byte leaves. For a
        receiver that is down none is taken, so that those who are there have them.
        """
        where = f"submissions/0x{commitment.hex()}"
        if self.uplink.bytes_per_second is not None:
            await self._require_up(url)
        with await self.uplink.places.take(url) as lease, ExitStack() as connecting:
            connecting.enter_context(lease.watched())  # it may have gone down while this waited
            pieces = self._pieces(url, data, lease, progress, connecting.close)
            await self._ask("POST", url, where, pieces, timeouts=self.bulk, body_bytes=len(data))

    async def submission(self, url: str, commitment: Digest, limit: int) -> bytes:
        return await self._ask("GET", url, f"submissions/0x{commitment.hex()}", limit=limit, timeouts=self.bulk)

    async def submission_manifest(self, url: str, commitment: Digest) -> bytes:
        """By what chunks the peer has the file: a hint of its own, for the commitment does not bind it."""
        return await self._ask("GET", url, f"submissions/0x{commitment.hex()}/manifest")

    async def push_verdicts(self, url: str, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        await self._ask("POST", url, f"verdicts/0x{commitment.hex()}", encode_verdicts(messages))

    async def verdicts(self, url: str, commitment: Digest) -> tuple[SignedMessage, ...]:
        return parse_verdicts(await self._ask("GET", url, f"verdicts/0x{commitment.hex()}"))

    async def propose(self, url: str, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        return parse_answer(await self._ask("POST", url, "batches", encode_proposal(run, commitments)))

    async def batch(self, url: str, commitment: Digest) -> SignedBatch:
        return parse_batch(await self._ask("GET", url, f"batches/0x{commitment.hex()}"))

    async def evidence(self, url: str, digest: Digest, limit: int) -> bytes:
        return await self._ask("GET", url, f"evidence/{digest.hex()}", limit=limit, timeouts=self.bulk)

    async def manifest(self, url: str, root: Digest, limit: int) -> bytes:
        """The bytes of a checkpoint's manifest: hash them before use."""
        return await self._ask("GET", url, f"manifests/{root.hex()}", limit=limit, timeouts=self.bulk)

    async def have(self, url: str, root: Digest) -> bytes:
        """The peer's bitmap of verified chunks of checkpoint `root`."""
        return await self._ask("GET", url, f"have/{root.hex()}")

    async def _pieces(
        self, url: str, data: bytes, lease: Lease, progress: OnProgress, connected: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        connected()
        size = min(PIECE_BYTES, self.uplink.piece_bytes)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            await self.uplink.turn(url, len(piece))
            with lease.watched():
                yield piece  # the next one is asked for once this one has left
            self.uplink.sent_bytes += len(piece)
            progress(at + len(piece), len(data))
        lease.give_up()  # the answer takes none of the uplink

    async def _require_up(self, url: str) -> None:
        """Leaves a connection that what is asked next goes over. Raises: NotFound: nothing answers there."""
        try:
            async with self._asked("GET", url, ANYTHING, timeout=self.quick.client()) as response:
                await read_limited(response, MAX_JSON_BYTES)
        except (ValueError, *UNREACHABLE) as error:
            raise _silent(url, error) from error

    async def _ask(
        self,
        method: str,
        base: str,
        path: str,
        body: bytes | AsyncIterator[bytes] | None = None,
        limit: int = MAX_JSON_BYTES,
        timeouts: Timeouts | None = None,
        body_bytes: int | None = None,
    ) -> bytes:
        sized = {} if body_bytes is None else {"Content-Length": str(body_bytes)}  # a receiver wants to know it first
        limits = (timeouts or self.quick).client()
        try:
            async with self._asked(method, base, path, data=body, headers=sized, timeout=limits) as response:
                return await _answer(response, limit)
        except (ValueError, *UNREACHABLE) as error:
            raise _silent(base, error) from error

    def _asked(
        self, method: str, base: str, path: str, **options: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        url = vet_url(base, allow_private=True) / "v1" / path  # private addresses are the session's to refuse, resolved
        return self.session.request(method, url, allow_redirects=False, **options)


def _silent(base: str, error: Exception) -> NotFound:
    return NotFound(f"{base} does not answer: {error or type(error).__name__}")


async def _answer(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Raises: NotFound, Malformed."""
    if response.status in TRY_AGAIN or response.status >= 500:
        raise NotFound(f"{response.url.origin()} answered {response.status}")
    if response.status >= 300:
        reason = (await read_limited(response, 4096)).decode(errors="replace")
        raise Malformed(f"{response.url.origin()} refused with {response.status}: {reason[:300]}")
    return await read_limited(response, limit)
