"""Whether others can connect to a node: they try, and say so. Nobody else's word can have them connect anywhere.

Request: empty. Answer: u8 1 where the asker's own endpoint, as the chain's record has it, answered HTTP; else u8 0.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from ledger.base import Address
from node.buckets import Rates
from node.clock import Clock
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.transport import UNREACHABLE, Timeouts, vet_url

PROBE: Final = Timeouts(connect_seconds=4.0, idle_seconds=4.0, total_seconds=8.0)
PROBE_PATH: Final = f"v1/manifests/{'0' * 64}"  # which no node has: it answers 404
PROBES_PER_SECOND, PROBES_BURST = 1 / 60, 2.0  # for one node
MAX_ASKERS: Final = 1_024  # remembered
MAX_PROBES: Final = 4  # at once, of one node one
ASKED: Final = 3  # peers that are asked about this node
YES, NO = b"\x01", b"\x00"
ADVICE: Final = "forward its port, correct --advertise, or `join` with --no-inbound"


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether this node answers at its endpoint: None while nobody has tried. `by` says who, `at` when."""

    answer: bool | None = None
    by: tuple[Address, ...] = ()
    at: float | None = None


@dataclass(slots=True)
class Prober:
    """Tries endpoints for those whose they are. `session` refuses private addresses unless they are permitted."""

    session: aiohttp.ClientSession
    endpoint_of: Callable[[Address], str | None]  # by the chain's record
    clock: Clock
    askers: Rates = field(init=False)
    probing: set[Address] = field(default_factory=set)  # for whom

    def __post_init__(self) -> None:
        self.askers = Rates(PROBES_PER_SECOND, PROBES_BURST, MAX_ASKERS, self.clock.monotonic)

    async def answer(self, node: Address) -> bytes:
        """To `node`. Raises: NotFound: it has no endpoint on chain, or asks too often, or others do."""
        url = self.endpoint_of(node)
        busy = node in self.probing or len(self.probing) >= MAX_PROBES
        if not url or busy or not self.askers.of(node).take():
            raise NotFound("no endpoint on chain, or asked too often")
        self.probing.add(node)
        try:
            return YES if await self._answers(url) else NO
        finally:
            self.probing.discard(node)

    async def _answers(self, url: str) -> bool:
        try:
            where = vet_url(url, allow_private=True) / PROBE_PATH  # private addresses are the session's to refuse
            async with self.session.get(where, timeout=PROBE.client(), allow_redirects=False) as response:
                return response.status > 0
        except (Malformed, ValueError, *UNREACHABLE):
            return False


async def reached(
    peers: Sequence[tuple[str, Address]], ask: Callable[[str], Awaitable[bytes]], now: float, rng: random.Random
) -> Reach:
    """What a few of `peers`, of different nodes, say: yes where one of them got an answer, no where none did."""
    nodes = {node: peer for peer, node in peers}
    chosen = rng.sample(sorted(nodes), min(ASKED, len(nodes)))
    answers = await asyncio.gather(*(_word(ask, nodes[node]) for node in chosen))
    yes = tuple(node for node, said in zip(chosen, answers, strict=True) if said == YES)
    no = tuple(node for node, said in zip(chosen, answers, strict=True) if said == NO)
    if yes or no:
        return Reach(bool(yes), yes or no, now)
    return Reach()


def tell(found: Reach, url: str) -> None:
    """Logs whether this node answers at `url`, and what to do where it does not."""
    if found.answer:
        event("reachable from outside", by=found.by)
    else:
        warn(f"not reachable from outside: {ADVICE}", url=url, by=found.by)


async def _word(ask: Callable[[str], Awaitable[bytes]], peer: str) -> bytes | None:
    try:
        return await ask(peer)
    except NotFound:
        return None
