"""Logs of the contracts, read in bounded ranges and decoded into the events of `ledger.base`, in chain order."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from eth_typing import BlockNumber
from eth_utils.address import to_checksum_address
from web3.contract.async_contract import AsyncContractEvent
from web3.types import FilterParams, LogReceipt

from ledger import base
from ledger.base import Address, Block, Digest, RunId, Version
from ledger.blocks import Headers, read_header
from ledger.endpoints import Endpoints, Web3
from ledger.errors import Unreachable
from ledger.interfaces import interface
from ledger.provider import Refused
from ledger.translation import BadAnswer, reading

RANGE_BLOCKS: Final = 2_000  # public endpoints take 10,000 blocks or less a request; refused ranges are halved
PARALLEL_HEADERS: Final = 8

OF_RUN: Final = (
    "CheckpointPublished",
    "Submitted",
    "Settled",
    "Reported",
    "Convicted",
    "Voided",
    "Expired",
    "SlashExecuted",
    "RelaySet",
    "RunEnded",
)
OF_NO_RUN: Final = ("EndpointSet", "Claimed")


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


@dataclass(frozen=True, slots=True)
class _Filter:
    """Logs of `events` of the contract `name`; of `run` only where it is given, as topic number `run_at`."""

    name: str
    address: Address
    events: tuple[str, ...]
    run: RunId | None = None
    run_at: int = 1

    def parameters(self, first_block: int, last_block: int) -> FilterParams:
        contract = interface(self.name)
        topics: list[Any] = [[contract.topic(event) for event in self.events]]
        if self.run is not None:
            topics += [None] * (self.run_at - 1) + [f"0x{self.run:064x}"]
        return {
            "address": to_checksum_address(self.address),
            "topics": topics,
            "fromBlock": BlockNumber(first_block),
            "toBlock": BlockNumber(last_block),
        }

    def passes(self, log: Log) -> bool:
        of_run = self.run is None or log.operands["run"] == self.run
        return log.address == self.address and log.event in self.events and of_run


class EventReader:
    """Events of one deployment."""

    def __init__(self, endpoints: Endpoints, headers: Headers, coordinator: Address, staking: Address) -> None:
        self._endpoints = endpoints
        self._headers = headers
        self._coordinator = coordinator
        self._staking = staking

    async def read(self, run: RunId, first_block: int, last_block: int) -> list[base.Event]:
        """See `Ledger.events`. `last_block` must exist; an endpoint that lacks it is passed over, since it would
        answer with too few events."""
        filters = [
            _Filter("RunCoordinator", self._coordinator, OF_RUN, run),
            _Filter("RunCoordinator", self._coordinator, OF_NO_RUN),
            _Filter("Staking", self._staking, ("Allocated",), run, run_at=2),
        ]
        logs: list[Log] = []
        for start in range(first_block, last_block + 1, RANGE_BLOCKS):
            logs += await self._logs(filters, start, min(start + RANGE_BLOCKS - 1, last_block))
        times = await self._times(logs)
        return [_BUILDERS[log.event](Block(log.block, times[log.block]), log, log.operands) for log in logs]

    async def find(self, event: str, run: RunId, first_block: int, last_block: int) -> list[Log]:
        """Logs of the coordinator's `event` of `run`."""
        wanted = _Filter("RunCoordinator", self._coordinator, (event,), run)
        return await self._logs([wanted], first_block, last_block)

    async def _logs(self, filters: Sequence[_Filter], first_block: int, last_block: int) -> list[Log]:
        """Logs that pass one of `filters`; a range that is refused is halved until it is a single block."""
        if first_block > last_block:
            return []

        async def question(w3: Web3) -> list[Log]:
            if await read_header(w3, last_block) is None:
                raise BadAnswer(f"lags behind block {last_block}")
            logs: dict[tuple[int, int], Log] = {}
            for wanted in filters:
                for entry in await w3.eth.get_logs(wanted.parameters(first_block, last_block)):
                    log = read_log(entry)
                    if log is None or not wanted.passes(log) or not first_block <= log.block <= last_block:
                        raise BadAnswer("a log that was not asked for")
                    logs[log.block, log.index] = log
            return [logs[place] for place in sorted(logs)]

        try:
            return await self._endpoints.ask(question)
        except Refused:
            if first_block == last_block:
                raise
            middle = (first_block + last_block) // 2
            return await self._logs(filters, first_block, middle) + await self._logs(filters, middle + 1, last_block)

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


@cache
def _by_topic() -> dict[bytes, AsyncContractEvent]:
    """Of the contracts whose events are read, by first topic."""
    contracts = [interface(name).contract for name in ("Staking", "RunCoordinator")]
    events = [c.events[entry["name"]] for c in contracts for entry in c.abi if entry["type"] == "event"]
    return {bytes.fromhex(event.topic[2:]): event for event in events}


_Build = Callable[[Block, Log, Mapping[str, Any]], base.Event]


def _run_of(o: Mapping[str, Any]) -> tuple[RunId, Digest]:
    return RunId(o["run"]), Digest(o["commitment"])


_BUILDERS: Final[dict[str, _Build]] = {
    "CheckpointPublished": lambda b, _, o: base.CheckpointPublished(
        b, RunId(o["run"]), Version(o["version"]), Digest(o["manifestRoot"])
    ),
    "Submitted": lambda b, _, o: base.Submitted(
        b, *_run_of(o), o["node"], Version(o["version"]), o["slot"], Digest(o["root"]), o["units"], Digest(o["beacon"])
    ),
    "Settled": lambda b, _, o: base.Settled(b, *_run_of(o), o["provider"], o["reward"]),
    "Reported": lambda b, _, o: base.Reported(
        b, *_run_of(o), o["validator"], o["leaf"], o["check"], Digest(o["evidence"]), o["count"]
    ),
    "Convicted": lambda b, _, o: base.Convicted(b, *_run_of(o), o["leaf"], o["check"], o["executableAt"]),
    "Voided": lambda b, _, o: base.Voided(b, *_run_of(o), o["check"], o["bond"]),
    "Expired": lambda b, _, o: base.Expired(b, *_run_of(o)),
    "SlashExecuted": lambda b, log, o: base.SlashExecuted(b, *_run_of(o), o["node"], o["amount"], log.transaction),
    "RelaySet": lambda b, _, o: base.RelaySet(b, RunId(o["run"]), o["relay"], o["approved"]),
    "EndpointSet": lambda b, _, o: base.EndpointSet(b, o["who"], o["url"]),
    "Allocated": lambda b, _, o: base.Allocated(b, RunId(o["run"]), o["provider"], o["node"], o["amount"]),
    "Claimed": lambda b, _, o: base.Claimed(b, o["provider"], o["amount"]),
    "RunEnded": lambda b, _, o: base.RunEnded(b, RunId(o["run"])),
}
