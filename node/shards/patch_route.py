"""Saying which patches are here; the patches themselves are served as checkpoints are."""

import re

from aiohttp import web

from ledger.base import Digest
from node.errors import Malformed, NotFound
from node.shards.patch_index import PatchIndex, Span
from node.shards.server import MAX_WAIT_SECONDS
from node.transport.sending import OCTETS


def add_patch_route(app: web.Application, index: PatchIndex) -> None:
    """Adds `/v1/patches/{target}?from={base}&wait=seconds` to `app`: 32 bytes, the root of such a patch.

    Roots are 64 lower-case hex digits; anything else, and any other query, is refused. Only for a patch that is being
    made or fetched here is there a wait.
    """

    async def patch(request: web.Request) -> web.Response:
        query = dict(request.query)
        repeated = len(query) < len(request.query)
        span = Span(_root(query.pop("from", "")), _root(request.match_info["target"]))
        wait = query.pop("wait", "0")
        if query or repeated or not re.fullmatch("[0-9]{1,2}", wait) or int(wait) > MAX_WAIT_SECONDS:
            raise Malformed(f"query: only from=ROOT and wait=0 to {MAX_WAIT_SECONDS} seconds")
        root = await index.wait_for(span, int(wait))
        if root is None:
            raise NotFound(f"no patch from {span.base.hex()} to {span.target.hex()} is here")
        return web.Response(body=root, content_type=OCTETS)

    app.router.add_get("/v1/patches/{target}", patch, allow_head=False)


def _root(text: str) -> Digest:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise Malformed("a root: not 64 lower-case hex digits")
    return Digest(bytes.fromhex(text))
