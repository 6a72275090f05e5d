"""The asking side: one method per request that a node makes of another. What comes back is parsed with limits."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

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
from node.transport import Timeouts, Uplink, read_limited, vet_url
from node.transport.uplink import Lease

QUICK = Timeouts(connect_seconds=3.0, idle_seconds=5.0, total_seconds=10.0)  # for small questions: others wait
BULK = Timeouts()  # for files
PIECE_BYTES = 1 << 18  # of a file that is sent
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

        However long it waits for its place in the uplink: the receiver's time begins when the first byte leaves.
        """
        where = f"submissions/0x{commitment.hex()}"
        with await self.uplink.place(url) as lease:
            pieces = self._pieces(url, data, lease, progress)
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

    async def _pieces(self, url: str, data: bytes, lease: Lease, progress: OnProgress) -> AsyncIterator[bytes]:
        size = min(PIECE_BYTES, self.uplink.piece_bytes)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            await self.uplink.turn(url, len(piece))
            with lease.watched():
                yield piece  # the next one is asked for once this one has left
            self.uplink.sent_bytes += len(piece)
            progress(at + len(piece), len(data))
        lease.give_up()  # the answer takes none of the uplink

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
        try:
            # Private addresses are the session's to refuse, after resolution.
            url = vet_url(base, allow_private=True) / "v1" / path
            async with self.session.request(
                method, url, data=body, headers=sized, allow_redirects=False, timeout=(timeouts or self.quick).client()
            ) as response:
                return await _answer(response, limit)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise NotFound(f"{base} does not answer: {error or type(error).__name__}") from error


async def _answer(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Raises: NotFound, Malformed."""
    if response.status in TRY_AGAIN or response.status >= 500:
        raise NotFound(f"{response.url.origin()} answered {response.status}")
    if response.status >= 300:
        reason = (await read_limited(response, 4096)).decode(errors="replace")
        raise Malformed(f"{response.url.origin()} refused with {response.status}: {reason[:300]}")
    return await read_limited(response, limit)
