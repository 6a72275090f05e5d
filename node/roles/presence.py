"""A role among its peers by libp2p: beside the chain's record and HTTP, never in their place.

Whatever libp2p does, or whether it is there at all, a role goes on: what fails here is said, and is all that fails.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from eth_account.signers.local import LocalAccount

from node.errors import StoreError
from node.files import write_atomically
from node.log import LOGGER, warn
from node.p2p.keys import load_secret
from node.p2p.listening import listening
from node.p2p.network import Network
from node.p2p.others import Alone
from node.p2p.sidecar import PACKAGE, Sidecar
from node.peers.server import Mailbox
from node.roles.announcing import Announcing
from node.roles.bootstrap import announced, network_of
from node.roles.member import Member

LOOKING_SECONDS: Final = 5.0  # between two looks at how it stands
SAVED_AGAIN_SECONDS: Final = 60.0  # at least so often `status` gets a new word


@asynccontextmanager
async def present(
    member: Member, mailbox: Mailbox | None, key: LocalAccount | None, url: str, *, package: str = PACKAGE
) -> AsyncIterator[str]:
    """`member.others` are its peers while the block runs, and are given the files of `mailbox`; what to announce on
    chain as its endpoint: `url`, and where its libp2p listens. `package` is what that needs beside this program.

    Raises: ConfigError: the port of libp2p is taken.
    """
    settings = member.settings.libp2p
    if key is None or not settings.on:
        member.others = Alone("--no-p2p")
        if key is not None:
            await asyncio.to_thread(_save, member)
        yield url
        return
    try:
        secret = await asyncio.to_thread(load_secret, member.state.peer_key)
    except StoreError as error:
        warn("libp2p is off: the chain's record and HTTP go on", reason=error)
        member.others = Alone(str(error))
        await asyncio.to_thread(_save, member)
        yield url
        return
    with listening(member.settings.host, settings.port, member.settings.allow_private, secret) as taken:
        sidecar = Sidecar(taken, member.state.peer_log, package=package)
        async with _running(member, sidecar, network_of(member, mailbox, key, sidecar, url)):
            yield announced(url, taken.address)


@asynccontextmanager
async def _running(member: Member, sidecar: Sidecar, network: Network) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sidecar.running(network))
        member.others = network
        for work in (network.run, Announcing(member).run, lambda: _keep_standing(member, sidecar)):
            await stack.enter_async_context(_beside(member, work))
        try:
            yield
        finally:
            member.others = Alone("the role has stopped")
            await asyncio.to_thread(_save, member)


@asynccontextmanager
async def _beside(member: Member, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """`work` runs while the block does; where it fails, which is a bug, libp2p is off and the role goes on."""
    task = asyncio.ensure_future(work())

    def over(done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            LOGGER.error("libp2p is off: this is a bug", exc_info=error)
            member.others = Alone("it failed: the log says how")

    task.add_done_callback(over)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_standing(member: Member, sidecar: Sidecar) -> None:
    """Leaves for `status` how it stands, whenever that is new."""
    saved, saved_at = "", float("-inf")
    while True:
        now = member.clock.monotonic()
        standing = json.dumps(member.others.standing() | {"why": sidecar.reason})
        if standing != saved or now - saved_at >= SAVED_AGAIN_SECONDS:
            saved, saved_at = standing, now
            await asyncio.to_thread(_save, member, sidecar.reason)
        await member.clock.sleep(LOOKING_SECONDS)


def _save(member: Member, why: str | None = None) -> None:
    """For `status`, which another process asks. What the disk refuses is not worth a line: it says how old it is."""
    found: dict[str, Any] = member.others.standing()
    whole = {**found, "why": found.get("why") or why, "at": member.record.head.time}
    with suppress(StoreError):
        write_atomically(member.state.peers, json.dumps(whole).encode())
