"""Logs of the contracts, read in bounded ranges and decoded into the events of `ledger.base`, in chain order."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, get_args

from hexbytes import HexBytes
from pydantic.alias_generators import to_snake
from web3.contract.async_contract import AsyncContractEvent
from web3.exceptions import TransactionNotFound
from web3.types import LogReceipt, TxReceipt

from ledger import base
from ledger.base import Address, Block, Digest, RunId
from ledger.blocks import Headers, read_header
from ledger.endpoints import Endpoints, Web3
from ledger.errors import Unreachable
from ledger.interfaces import interface
from ledger.provider import Refused, TimedOut, TooLarge
from ledger.translation import BadAnswer, reading

_log = logging.getLogger(__name__)

RANGE_BLOCKS: Final = 2_000  # public endpoints take 10,000 blocks or less a request
WIDENING: Final = 9 / 8  # of a range that was answered, since trying one that is too wide costs up to a time-out
PARALLEL_HEADERS: Final = 8
PARALLEL_RECEIPTS: Final = 8

OF_STAKING: Final = ("Allocated",)
OF_NO_RUN: Final = ("EndpointSet", "Claimed")
OF_RUN: Final = tuple(kind.__name__ for kind in get_args(base.Event) if kind.__name__ not in {*OF_STAKING, *OF_NO_RUN})


@dataclass(frozen=True, slots=True)
class Log:
    """An event of one of the contracts. `time` is None where the endpoint does not tell."""

    event: str
    operands: Mapping[str, Any]
    address: Address
    block: int
    block_hash: Digest
    time: int | None
    index: int
    transaction: Digest


class TooWide(Refused):
    """The answer of a range of blocks is too long, or takes too long. Whoever pays the gas can make any range so, a
    single block too."""


@dataclass(slots=True)
class Span:
    """How many blocks are asked for at once: `now`, never over `most`."""

    most: int
    width: float

    @property
    def now(self) -> int:
        return int(self.width)

    def narrow(self, tried: int) -> None:
        """After `tried` blocks were refused."""
        self.width = max(1, tried // 2)

    def widen(self) -> None:
        """After a range was answered."""
        self.width = min(self.most, self.width * WIDENING)


_Topics = list[list[str] | None]  # for each place of a log's topics those that pass, None for all
_Filter = tuple[Address, _Topics]


class EventReader:
    """Events of one deployment."""

    def __init__(self, endpoints: Endpoints, headers: Headers, coordinator: Address, staking: Address) -> None:
        self._endpoints = endpoints
        self._headers = headers
        self._coordinator = coordinator
        self._staking = staking
        self._span = Span(RANGE_BLOCKS, RANGE_BLOCKS)

    async def read(self, run: RunId, first_block: int, last_block: int) -> list[base.Event]:
        """See `Ledger.events`. `last_block` must exist; an endpoint that lacks it is passed over, since it would
        answer with too few events."""
        coordinator, staking, of_run = interface("RunCoordinator"), interface("Staking"), [_topic(run)]
        filters: list[_Filter] = [
            (self._coordinator, [[coordinator.topic(name) for name in OF_RUN], of_run]),
            (self._coordinator, [[coordinator.topic(name) for name in OF_NO_RUN]]),
            (self._staking, [[staking.topic(name) for name in OF_STAKING], None, of_run]),
        ]
        logs = await self._logs(filters, first_block, last_block, self._span)
        times = await self._times(logs)
        return [_event(log, times[log.block]) for log in logs]

    async def find(self, event: str, run: RunId, first_block: int, last_block: int) -> list[Log]:
        """Logs of the coordinator's `event` of `run`."""
        topics: _Topics = [[interface("RunCoordinator").topic(event)], [_topic(run)]]
        blocks = max(1, last_block - first_block + 1)
        return await self._logs([(self._coordinator, topics)], first_block, last_block, Span(blocks, blocks))

    async def _logs(self, filters: Sequence[_Filter], first_block: int, last_block: int, span: Span) -> list[Log]:
        """Logs that pass one of `filters`; a range that is refused is halved until it is a single block, and that is
        read transaction by transaction, so that nothing in it is left out."""
        logs: list[Log] = []
        while first_block <= last_block:
            last = min(first_block + span.now - 1, last_block)
            try:
                logs += await self._endpoints.ask(partial(_logs_of, filters, first_block, last))
            except Refused as problem:
                span.narrow(last - first_block + 1)
                if first_block < last:
                    continue
                _log.info("reading block %d by its transactions: %s", last, problem)
                logs += await self._endpoints.ask(partial(_logs_of_block, filters, last))
            else:
                span.widen()
            first_block = last + 1
        return logs

    async def _times(self, logs: Sequence[Log]) -> dict[int, int]:
        """Timestamps of the blocks of `logs`."""
        times = {log.block: log.time for log in logs if log.time is not None}
        hashes = {log.block: log.block_hash for log in logs if log.block not in times}
        limit = asyncio.Semaphore(PARALLEL_HEADERS)

        async def read(number: int) -> None:
            async with limit:
                header = await self._headers.require(number)
            if header.hash != hashes[number]:
                raise Unreachable(f"block {number} was replaced while its logs were read")
            times[number] = header.time

        await asyncio.gather(*(read(number) for number in hashes))
        return times


async def _logs_of(filters: Sequence[_Filter], first_block: int, last_block: int, w3: Web3) -> list[Log]:
    """One endpoint's, in chain order. Raises: BadAnswer, TooWide."""
    if await read_header(w3, last_block) is None:
        raise BadAnswer(f"lags behind block {last_block}")
    logs: dict[tuple[int, int], Log] = {}
    for address, topics in filters:
        wanted: Any = {"address": address, "topics": topics, "fromBlock": first_block, "toBlock": last_block}
        try:
            entries = await w3.eth.get_logs(wanted)
        except (TooLarge, TimedOut) as problem:
            raise TooWide(f"logs of blocks {first_block} to {last_block}: {problem}") from problem
        for entry in entries:
            found = read_log(entry) if _passes(entry, address, topics) else None
            if found is None or not first_block <= found.block <= last_block:
                raise BadAnswer("a log that was not asked for")
            logs[found.block, found.index] = found
    return [logs[place] for place in sorted(logs)]


async def _logs_of_block(filters: Sequence[_Filter], number: int, w3: Web3) -> list[Log]:
    """As `_logs_of` of one block, from the receipts of its transactions: no chain lets one fill an answer. Raises:
    BadAnswer."""
    block = await w3.eth.get_block(number)
    listed: Any = block["transactions"]  # hashes, as asked for
    hashes = [bytes(each) for each in listed]
    logs: list[Log] = []
    for first in range(0, len(hashes), PARALLEL_RECEIPTS):
        some = hashes[first : first + PARALLEL_RECEIPTS]
        for receipt in await asyncio.gather(*(_receipt(w3, transaction) for transaction in some)):
            passing = [e for e in receipt["logs"] if any(_passes(e, address, topics) for address, topics in filters)]
            logs += [found for entry in passing if (found := read_log(entry)) is not None]
    if any((each.block, each.block_hash) != (number, bytes(block["hash"])) for each in logs):
        raise BadAnswer(f"block {number} was replaced while it was read")
    return sorted(logs, key=lambda each: each.index)


async def _receipt(w3: Web3, transaction: bytes) -> TxReceipt:
    try:
        receipt = await w3.eth.get_transaction_receipt(HexBytes(transaction))
    except TransactionNotFound:
        raise BadAnswer(f"no receipt of 0x{transaction.hex()}, which is in a block") from None
    if bytes(receipt["transactionHash"]) != transaction:
        raise BadAnswer("a receipt of another transaction")
    return receipt


def read_log(log: LogReceipt) -> Log | None:
    """The event in `log`, None where it is none that the contracts have. Raises: BadAnswer."""
    known = _by_topic().get(log["topics"][0]) if log["topics"] else None
    if known is None:
        return None
    with reading():
        event = known.process_log(log)
    time: Any = log.get("blockTimestamp")  # which web3 does not format
    return Log(
        event=known.name,
        operands=event["args"],
        address=Address(log["address"]),
        block=log["blockNumber"],
        block_hash=Digest(bytes(log["blockHash"])),
        time=None if time is None else int(time, 16),
        index=log["logIndex"],
        transaction=Digest(bytes(log["transactionHash"])),
    )


def _passes(log: LogReceipt, address: Address, topics: _Topics) -> bool:
    given = [topic.to_0x_hex() for topic in log["topics"]]
    if str(log["address"]) != address or len(given) < len(topics):
        return False
    return all(options is None or topic in options for topic, options in zip(given, topics, strict=False))


def _topic(run: RunId) -> str:
    return f"0x{run:064x}"


@cache
def _by_topic() -> dict[bytes, AsyncContractEvent]:
    """Of the contracts whose events are read, by first topic."""
    contracts = [interface(name).contract for name in ("Staking", "RunCoordinator")]
    events = [c.events[entry["name"]] for c in contracts for entry in c.abi if entry["type"] == "event"]
    return {bytes.fromhex(event.topic[2:]): event for event in events}


def _event(log: Log, time: int) -> base.Event:
    """`base` has a type for each event that is asked for, by its name, with its operands by their names."""
    values = {to_snake(name): value for name, value in log.operands.items()}
    if log.event == base.SlashExecuted.__name__:
        values["transaction"] = log.transaction
    event: base.Event = getattr(base, log.event)(Block(log.block, time), **values)
    return event
