"""Block headers: the latest, one by number, the first at a time; settled ones are remembered."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ledger.base import Block, Digest
from ledger.errors import Unreachable
from ledger.rpc import Rpc
from ledger.wire import BadAnswer, digest, member, quantity

REMEMBERED: Final = 4096  # headers; about 1 MB
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

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._settled: OrderedDict[int, Header] = OrderedDict()
        self.highest = 0  # block number seen so far

    async def latest(self) -> Header:
        header = await self._rpc.ask("eth_getBlockByNumber", ["latest", False], parse_header)
        self.highest = max(self.highest, header.number)
        return header

    async def get(self, number: int) -> Header | None:
        """Header `number`, or None while there is none."""
        if number in self._settled:
            self._settled.move_to_end(number)
            return self._settled[number]
        header = await self._rpc.ask(
            "eth_getBlockByNumber", [hex(number), False], lambda answer: _numbered(answer, number)
        )
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


def parse_header(answer: object) -> Header:
    """Raises: BadAnswer, also on null."""
    return Header(
        number=quantity(member(answer, "number"), 63),
        time=quantity(member(answer, "timestamp"), 63),
        hash=digest(member(answer, "hash")),
        mix=digest(member(answer, "mixHash")),
        base_fee=quantity(member(answer, "baseFeePerGas"), 128),
    )


def _numbered(answer: object, number: int) -> Header | None:
    if answer is None:
        return None
    header = parse_header(answer)
    if header.number != number:
        raise BadAnswer(f"block {header.number} instead of {number}")
    return header
