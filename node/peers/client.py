"""The asking side: one method per request that a node makes of another. What comes back is parsed with limits."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from node.transport import read_limited

MAX_MANIFEST_BYTES = 64 << 20  # 1 MB describes 62 GB of weights
TRY_AGAIN = {404, 408, 409, 425, 429}  # and every 5xx: the peer may answer otherwise later


@dataclass(frozen=True, slots=True)
class PeerClient:
    """Every method raises `NotFound` where asking again can help, and `Malformed` where it cannot.

    `session` comes from `node.transport.session`, so that hostile addresses and endless answers are refused.
    """

    session: aiohttp.ClientSession

    async def push_submission(self, url: str, commitment: Digest, data: bytes) -> None:
        """Hands a rollout file to a validator or the trainer."""
        await self._ask("POST", f"{url}/v1/submissions/0x{commitment.hex()}", data)

    async def submission(self, url: str, commitment: Digest, limit: int) -> bytes:
        return await self._ask("GET", f"{url}/v1/submissions/0x{commitment.hex()}", limit=limit)

    async def push_verdicts(self, url: str, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        await self._ask("POST", f"{url}/v1/verdicts/0x{commitment.hex()}", encode_verdicts(messages))

    async def verdicts(self, url: str, commitment: Digest) -> tuple[SignedMessage, ...]:
        return parse_verdicts(await self._ask("GET", f"{url}/v1/verdicts/0x{commitment.hex()}"))

    async def propose(self, url: str, run: RunId, commitments: Sequence[Digest]) -> BatchAnswer:
        return parse_answer(await self._ask("POST", f"{url}/v1/batches", encode_proposal(run, commitments)))

    async def batch(self, url: str, commitment: Digest) -> SignedBatch:
        return parse_batch(await self._ask("GET", f"{url}/v1/batches/0x{commitment.hex()}"))

    async def evidence(self, url: str, digest: Digest, limit: int) -> bytes:
        return await self._ask("GET", f"{url}/v1/evidence/{digest.hex()}", limit=limit)

    async def manifest(self, url: str, root: Digest) -> bytes:
        """The bytes of a checkpoint's manifest: hash them before use."""
        return await self._ask("GET", f"{url}/v1/manifests/{root.hex()}", limit=MAX_MANIFEST_BYTES)

    async def have(self, url: str, root: Digest) -> bytes:
        """The peer's bitmap of verified chunks of checkpoint `root`."""
        return await self._ask("GET", f"{url}/v1/have/{root.hex()}")

    async def _ask(self, method: str, url: str, body: bytes | None = None, limit: int = MAX_JSON_BYTES) -> bytes:
        try:
            async with self.session.request(method, url, data=body, allow_redirects=False) as response:
                if response.status in TRY_AGAIN or response.status >= 500:
                    raise NotFound(f"{url} answered {response.status}")
                if response.status >= 300:
                    reason = (await read_limited(response, 4096)).decode(errors="replace")
                    raise Malformed(f"{url} refused with {response.status}: {reason[:300]}")
                return await read_limited(response, limit)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise NotFound(f"{url} does not answer: {error or type(error).__name__}") from error
