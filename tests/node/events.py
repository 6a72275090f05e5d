"""A chain of events that a test writes down, for records of a run to read."""

import asyncio

from ledger.base import (
    Address,
    Block,
    CheckpointPublished,
    Digest,
    Event,
    RunId,
    RunParams,
    RunState,
    Submitted,
    Version,
    Windows,
)
from ledger.errors import Unreachable

NODE, OTHER = Address("0x" + "0a" * 20), Address("0x" + "0b" * 20)
WINDOWS = Windows(available=6, audit=10, settle_by=100, confirm=20, contest=8, panel=0, grace=30)
PARAMS = RunParams(NODE, (NODE,), 1, 1, 1, 0, 1, 100, 2, 2, 0, 0, WINDOWS)
RUN = RunId(1)


def digest(number: int) -> Digest:
    return Digest(number.to_bytes(32))


def block(number: int) -> Block:
    """Blocks are ten seconds apart here."""
    return Block(number, 10 * number)


def published(version: int, at: int) -> CheckpointPublished:
    return CheckpointPublished(block(at), RUN, Version(version), digest(900 + version))


def submitted(name: int, at: int, version: int = 0, slot: int = 0, node: Address = NODE) -> Submitted:
    return Submitted(block(at), RUN, digest(name), node, Version(version), slot, digest(1), 5, digest(2))


class Chain:
    """A ledger that only reads; it remembers which blocks it was asked for, and can break off."""

    origin_block, confirmations = 0, 0

    def __init__(self, events: list[Event], head: int) -> None:
        self.all, self.tip, self.asked = events, head, list[tuple[int, int]]()
        self.failing_from: int | None = None
        self.state: RunState | None = None

    async def head(self) -> Block:
        return block(self.tip)

    async def events(self, run: RunId, first: int, last: int) -> list[Event]:
        await asyncio.sleep(0)
        if self.failing_from is not None and first >= self.failing_from:
            raise Unreachable("no endpoint")
        self.asked.append((first, last))
        return [event for event in self.all if first <= event.block.number <= last]

    async def run_state(self, run: RunId) -> RunState:
        return self.state or RunState(1, 0, 0, 0, ended_at=1)

    def doubt(self) -> bool:
        return False


class StoppedClock:
    """Stands still until a test moves it on."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
