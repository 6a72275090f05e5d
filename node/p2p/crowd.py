"""Work for other nodes of which there is so much at once: it is ended for others who have less under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledger.base import Address
from node.crowd import Crowd
from node.errors import NotFound


@asynccontextmanager
async def place(crowd: Crowd, asker: Address) -> AsyncIterator[None]:
    """`asker` is in `crowd` while the block runs. Raises: NotFound: there is no room, or it had to give way."""
    try:
        async with asyncio.timeout(None) as ending:
            now = asyncio.get_running_loop().time
            if not crowd.enter(asker, ending, lambda: ending.reschedule(now())):
                raise NotFound("too much at once")
            try:
                yield
            finally:
                crowd.leave(asker, ending)
    except TimeoutError as error:
        raise NotFound("it took too long, or others ask who have less") from error
