"""What HTTP does not give, by libp2p streams: from nodes that nobody can connect to, which did connect themselves."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from blake3 import blake3

from ledger.base import Address, Digest, Submitted
from node.errors import Malformed, NotFound, StoreError
from node.log import event
from node.p2p.content import Content, Kind
from node.p2p.others import Others
from node.rollouts.file import require_root
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.shards.store import CheckpointStore

CONTENT_SECONDS = 60.0  # whoever sends it, and however many are asked


async def file_by_stream(others: Others, made: Submitted, limit: int) -> bytes:
    """The rollout file that was committed to, of at most `limit` bytes. Raises: NotFound."""
    content = Content(Kind.FILE, made.commitment, limit, lambda data: require_root(data, made.root, limit))
    data = await _fetched(others, content, (made.node, *others.holders(made.commitment)))
    event("file fetched by a stream", commitment=made.commitment, node=made.node, bytes=len(data))
    return data


async def manifest_by_stream(others: Others, store: CheckpointStore, root: Digest) -> None:
    """Takes down the manifest of `root` where a peer gives it out: its chunks come by HTTP, as always."""
    with suppress(NotFound, Malformed, StoreError):
        content = Content(Kind.MANIFEST, root, MAX_MANIFEST_BYTES, lambda data: _require_digest(data, root))
        data = await _fetched(others, content, others.having(root))
        manifest = await asyncio.to_thread(Manifest.parse, data)
        await asyncio.to_thread(store.remember, manifest)
        event("manifest fetched by a stream", root=root, bytes=len(data))


async def _fetched(others: Others, content: Content, nodes: Sequence[Address]) -> bytes:
    """Raises: NotFound."""
    try:
        async with asyncio.timeout(CONTENT_SECONDS):
            return await others.fetch(content, nodes)
    except TimeoutError as error:
        raise NotFound(f"no peer handed it over within {CONTENT_SECONDS:g} s") from error


def _require_digest(data: bytes, digest: Digest) -> None:
    """Raises: Malformed."""
    if blake3(data).digest() != digest:
        raise Malformed("the bytes are not those of the digest")
