"""What HTTP does not give, by libp2p streams: from nodes that nobody can connect to, which did connect themselves."""

import asyncio
from contextlib import suppress

from blake3 import blake3

from ledger.base import Digest, Submitted
from node.errors import Malformed, NotFound, StoreError
from node.log import event
from node.p2p.content import Kind
from node.p2p.others import Others
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.shards.store import CheckpointStore

FILE_SECONDS = 60.0  # for a file, whoever sends it
HOLDERS_ASKED = 6  # of a file; beside its maker, those who offered it


async def file_by_stream(others: Others, made: Submitted, limit: int) -> bytes:
    """The rollout file of a commitment, at most `limit` bytes, as some peer gave it out: it is to be checked.

    Raises: NotFound.
    """
    holders = tuple(dict.fromkeys((made.node, *others.holders(made.commitment))))
    try:
        async with asyncio.timeout(FILE_SECONDS):
            data = await others.fetch(Kind.FILE, made.commitment, limit, holders[:HOLDERS_ASKED])
    except TimeoutError as error:
        raise NotFound(f"no peer handed over the file within {FILE_SECONDS:g} s") from error
    event("file fetched by a stream", commitment=made.commitment, node=made.node, bytes=len(data))
    return data


async def manifest_by_stream(others: Others, store: CheckpointStore, root: Digest) -> None:
    """Takes down the manifest of `root` where a peer gives it out: its chunks come by HTTP, as always."""
    with suppress(NotFound, Malformed, StoreError):
        data = await others.fetch(Kind.MANIFEST, root, MAX_MANIFEST_BYTES, others.having(root)[:HOLDERS_ASKED])
        if blake3(data).digest() == root:
            manifest = await asyncio.to_thread(Manifest.parse, data)
            await asyncio.to_thread(store.remember, manifest)
            event("manifest fetched by a stream", root=root, bytes=len(data))
