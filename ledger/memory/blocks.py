"""Blocks in memory: numbers, times, beacons and the log of events. What contracts do in them is in `rules`."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from eth_utils.crypto import keccak

from ledger.base import Address, Block, Claimed, Digest, EndpointSet, Event, Receipt, RunId

BEACON_DELAY_BLOCKS: Final = 2  # protocol, "Beacons", anvil's rule
GAS: Final = 21_000  # of every call; the protocol counts on no figure, and nobody is charged

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """A transaction while a contract's rules run: who sent it, in which block; what it emits is dropped on a revert."""

    sender: Address
    block: Block
    transaction: Digest
    log: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.log.append(event)


class Blocks:
    """Block 0 has time `start`. Unless `automine`, writes gather in the next block and wait until `mine` ends it."""

    def __init__(self, chain_id: int, start: int, automine: bool) -> None:
        self.automine = automine
        self._chain_id = chain_id
        self._times = [start]
        self._log: list[Event] = []
        self._transactions = 0
        self._pending = False
        self._mined = asyncio.Event()

    @property
    def head(self) -> Block:
        return Block(len(self._times) - 1, self._times[-1])

    def mine(self, seconds: int = 1) -> Block:
        """Moves the head `seconds` on and returns it. Writes that wait are in the first block after the old head."""
        if seconds < 1:
            raise ValueError(f"a block is at least 1 second after the one before it, not {seconds}")
        end = self.head.time + seconds
        if self._pending and seconds > 1:
            self._seal(self.head.time + 1)
        self._seal(end)
        return self.head

    def block_at(self, time: int) -> Block | None:
        number = bisect_left(self._times, time)
        return Block(number, self._times[number]) if number < len(self._times) else None

    def mix_hash(self, number: int) -> Digest:
        """Stands in for prevrandao: the same in every chain of this id and number, and of no obvious pattern."""
        return Digest(keccak(b"mix hash" + self._chain_id.to_bytes(32) + number.to_bytes(32)))

    def beacon(self, number: int, confirmations: int) -> Digest | None:
        holder = number + BEACON_DELAY_BLOCKS
        return Digest(keccak(self.mix_hash(holder))) if holder + confirmations <= self.head.number else None

    def events(self, run: RunId, first: int, last: int) -> list[Event]:
        """Events of `run`, and of no run, in blocks `first` to `last` (inclusive) that are mined."""
        start = bisect_left(self._log, first, key=_number)
        stop = bisect_right(self._log, min(last, self.head.number), key=_number)
        return [
            event for event in self._log[start:stop] if isinstance(event, EndpointSet | Claimed) or event.run == run
        ]

    async def execute(self, sender: Address, effect: Callable[[Call], Result]) -> tuple[Result, Receipt]:
        """Runs `effect` in the next block and returns once that is mined.

        `effect` must change nothing before its last check: where it raises `Reverted`, no block is made.
        """
        number = self._transactions + 1
        block = Block(self.head.number + 1, self.head.time + 1)
        call = Call(sender, block, Digest(keccak(b"transaction" + number.to_bytes(32))))
        result = effect(call)
        self._transactions = number
        self._log += call.log
        self._pending = True
        mined = self._mined
        if self.automine:
            self.mine()
        else:
            await mined.wait()
        return result, Receipt(call.transaction, block, GAS)

    def _seal(self, time: int) -> None:
        self._times.append(time)
        self._pending = False
        self._mined.set()
        self._mined = asyncio.Event()


def _number(event: Event) -> int:
    return event.block.number
