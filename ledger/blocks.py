"""Block headers: the latest, one by number, the first at a time; settled ones are remembered."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from time import time as machine_time
from typing import Final, Literal

from web3.exceptions import BlockNotFound

from ledger.base import Block, Digest
from ledger.endpoints import Endpoints, Web3
from ledger.errors import Unreachable
from ledger.translation import BadAnswer

REMEMBERED: Final = 4096  # headers; about 1 MB
AHEAD_SECONDS: Final = 3600  # a block this far ahead of the machine's clock is a lie, or the clock is off by as much
COMPARE_SECONDS: Final = 30.0  # between two comparisons of the endpoints' heads
STALLED_SECONDS: Final = 6.0  # likewise while the head stands still: three of Base's blocks
LEAST_LAG: Final = 3  # blocks that endpoints may be apart in any case
SETTLED_DEPTH: Final = 32  # blocks: deeper than any reorg seen on an OP stack or made in a test


@dataclass(frozen=True, slots=True)
class Header:
    number: int
    time: int  # seconds
    hash: Digest
    mix: Digest  # prevrandao
    base_fee: int  # wei per gas

    @property
    def block(self) -> Block:
        return Block(self.number, self.time)


class Headers:
    """Headers of one chain. One that a reorg could still replace is asked for every time."""

    def __init__(
        self,
        endpoints: Endpoints,
        ahead_seconds: float | None = None,
        confirmations: int = 0,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`ahead_seconds`: how far ahead of this machine's clock a block may be; None on a devnet, where time can be
        set forward. An endpoint that is further behind another than `confirmations` is not asked first any more."""
        self._endpoints = endpoints
        self._ahead = ahead_seconds
        self._lag = max(confirmations, LEAST_LAG)
        self._now = now
        self._compared = self._moved = now()  # when the endpoints' heads were compared, and when the head last moved
        self._settled: OrderedDict[int, Header] = OrderedDict()
        self.highest = 0  # block number seen so far

    async def latest(self) -> Header:
        header = await self._endpoints.ask(self._latest)
        if self._endpoints.several:
            header = await self._foremost(header)
        self.highest = max(self.highest, header.number)
        return header

    async def _foremost(self, header: Header) -> Header:
        """`header`, or now and then the one that another endpoint has, where that is far ahead."""
        now = self._now()
        if header.number > self.highest:
            self._moved = now
        if now - self._compared < (STALLED_SECONDS if now - self._moved >= STALLED_SECONDS else COMPARE_SECONDS):
            return header
        best = header
        for w3, other in await self._endpoints.each(self._head):
            if other.number > best.number + self._lag:
                self._endpoints.leave_for(w3, other.number - best.number)
                best = other
        self._compared = now
        return best

    async def _head(self, w3: Web3) -> tuple[Web3, Header]:
        return w3, await self._latest(w3)

    async def get(self, number: int) -> Header | None:
        """Header `number`, or None while there is none."""
        if number in self._settled:
            self._settled.move_to_end(number)
            return self._settled[number]
        header = await self._endpoints.ask(lambda w3: self._numbered(w3, number))
        if header is not None and number + SETTLED_DEPTH <= self.highest:
            self._settled[number] = header
            if len(self._settled) > REMEMBERED:
                self._settled.popitem(last=False)
        return header

    async def first(self, reached: Callable[[Header], Awaitable[bool]]) -> Header | None:
        """The first header for which `reached` holds, or None; once it holds, it must hold for all later ones.

        Searched backwards in doubling steps from the latest, since callers ask about the recent past, then by halves.
        """
        upper = await self.latest()
        if not await reached(upper):
            return None
        step = 1
        lower = -1  # no block below this number can be the answer
        while upper.number > 0 and lower < 0:
            probe = await self.require(max(0, upper.number - step))
            if await reached(probe):
                upper, step = probe, step * 2
            else:
                lower = probe.number
        while upper.number - lower > 1:
            probe = await self.require((lower + upper.number) // 2)
            if await reached(probe):
                upper = probe
            else:
                lower = probe.number
        return upper

    async def first_at(self, time: int) -> Header | None:
        """The first header whose timestamp is at least `time`, or None while there is none."""

        async def reached(header: Header) -> bool:
            return header.time >= time

        return await self.first(reached)

    async def require(self, number: int) -> Header:
        """Header `number` of a block known to exist. Raises: Unreachable where an endpoint has lost it."""
        header = await self.get(number)
        if header is None:
            raise Unreachable(f"block {number} is gone from the RPC endpoint")
        return header

    async def _latest(self, w3: Web3) -> Header:
        header = self._believed(await read_latest(w3))
        if header.number < self.highest:  # an endpoint that lags, a reorg, or a chain that was started anew
            await self._endpoints.require_genesis(w3)
        return header

    async def _numbered(self, w3: Web3, number: int) -> Header | None:
        header = await read_header(w3, number)
        return None if header is None else self._believed(header)

    def _believed(self, header: Header) -> Header:
        """`header`, unless it is from the future: validators sign times, and act by them. Raises: BadAnswer."""
        ahead = header.time - machine_time()
        if self._ahead is not None and ahead > self._ahead:
            raise BadAnswer(f"block {header.number} is {ahead:.0f} s ahead of this machine's clock: one is wrong")
        return header


async def read_latest(w3: Web3) -> Header:
    """The latest header as one endpoint has it."""
    header = await read_header(w3, "latest")
    if header is None:
        raise BadAnswer("no latest block")
    return header


async def read_header(w3: Web3, which: int | Literal["latest"]) -> Header | None:
    """One endpoint's header, None where it has none. Raises: BadAnswer where it is another one."""
    try:
        block = await w3.eth.get_block(which)
    except BlockNotFound:
        return None
    if which not in ("latest", block["number"]):
        raise BadAnswer(f"block {block['number']} instead of {which}")
    return Header(
        number=block["number"],
        time=block["timestamp"],
        hash=Digest(bytes(block["hash"])),
        mix=Digest(bytes(block["mixHash"])),
        base_fee=block["baseFeePerGas"],
    )
