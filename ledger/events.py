"""Logs of the contracts, read in bounded ranges and decoded into the events of `ledger.base`, in chain order."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ledger import base
from ledger.base import Address, Block, Digest, RunId, Version
from ledger.blocks import Headers
from ledger.errors import Unreachable
from ledger.interfaces import Entry, decode, interface
from ledger.rpc import Refused, Request, Rpc
from ledger.wire import BadAnswer, address, array, byte_string, digest, member, quantity

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
    """A log whose form was checked, not yet its content. `time` is None where the endpoint does not tell."""

    address: Address
    topics: tuple[Digest, ...]
    data: bytes
    block: int
    block_hash: Digest
    time: int | None
    index: int
    transaction: Digest


class EventReader:
    """Events of one deployment."""

    def __init__(self, rpc: Rpc, headers: Headers, coordinator: Address, staking: Address) -> None:
        self._rpc = rpc
        self._headers = headers
        self._coordinator = coordinator
        self._staking = staking

    async def read(self, run: RunId, first_block: int, last_block: int) -> list[base.Event]:
        """See `Ledger.events`. `last_block` must exist; an endpoint that lacks it is passed over, since it would
        answer with too few events."""
        logs: list[Log] = []
        for start in range(first_block, last_block + 1, RANGE_BLOCKS):
            logs += await self._range(run, start, min(start + RANGE_BLOCKS - 1, last_block))
        times = await self._times(logs)
        events = [_event(log, Block(log.block, times[log.block])) for log in logs]
        return [event for event in events if event is not None]

    async def find(self, event: str, topics: Sequence[Digest], first_block: int, last_block: int) -> list[Log]:
        """Logs of the coordinator's `event` with those indexed operands."""
        signature = Digest(interface("RunCoordinator").events[event].topic)
        wanted: list[object] = [_hex(topic) for topic in (signature, *topics)]
        return await self._logs([(self._coordinator, wanted)], first_block, last_block)

    async def _range(self, run: RunId, first_block: int, last_block: int) -> list[Log]:
        coordinator, staking = interface("RunCoordinator").events, interface("Staking").events
        run_topic = _hex(Digest(run.to_bytes(32)))
        filters: list[tuple[Address, list[object]]] = [
            (self._coordinator, [[_hex(coordinator[name].topic) for name in OF_RUN], run_topic]),
            (self._coordinator, [[_hex(coordinator[name].topic) for name in OF_NO_RUN]]),
            (self._staking, [_hex(staking["Allocated"].topic), None, run_topic]),
        ]
        return await self._logs(filters, first_block, last_block)

    async def _logs(
        self, filters: Sequence[tuple[Address, list[object]]], first_block: int, last_block: int
    ) -> list[Log]:
        """Logs that pass one of `filters`; a range that is refused is halved until it is a single block."""
        if first_block > last_block:
            return []
        span = {"fromBlock": hex(first_block), "toBlock": hex(last_block)}
        requests: list[Request] = [("eth_getBlockByNumber", [hex(last_block), False])]
        requests += [("eth_getLogs", [{"address": where, "topics": topics, **span}]) for where, topics in filters]

        def parse(answers: list[object]) -> list[Log]:
            if answers[0] is None:
                raise BadAnswer(f"lags behind block {last_block}")
            logs = [
                _checked(parse_log(entry), where, first_block, last_block)
                for (where, _), answer in zip(filters, answers[1:], strict=True)
                for entry in array(answer)
            ]
            return sorted(set(logs), key=lambda log: (log.block, log.index))

        try:
            return await self._rpc.ask_together(requests, parse)
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


def parse_log(entry: object) -> Log:
    """Raises: BadAnswer."""
    if isinstance(entry, dict) and entry.get("removed") is True:
        raise BadAnswer("a log of a block that was replaced")
    time = entry.get("blockTimestamp") if isinstance(entry, dict) else None
    return Log(
        address=address(member(entry, "address")),
        topics=tuple(digest(topic) for topic in array(member(entry, "topics"))[:5]),
        data=byte_string(member(entry, "data")),
        block=quantity(member(entry, "blockNumber"), 63),
        block_hash=digest(member(entry, "blockHash")),
        time=None if time is None else quantity(time, 63),
        index=quantity(member(entry, "logIndex"), 63),
        transaction=digest(member(entry, "transactionHash")),
    )


def operands(entry: Entry, log: Log) -> dict[str, Any]:
    """The operands of event `entry` in `log`, by name. Raises: BadAnswer."""
    indexed = [parameter for parameter in entry.inputs if parameter.indexed]
    plain = [parameter for parameter in entry.inputs if not parameter.indexed]
    if not log.topics or log.topics[0] != entry.topic or len(log.topics) != 1 + len(indexed):
        raise BadAnswer(f"a log that is no {entry.name}")
    values = {
        parameter.name: decode([parameter.type], topic)[0]
        for parameter, topic in zip(indexed, log.topics[1:], strict=True)
    }
    names = [parameter.name for parameter in plain]
    return values | dict(zip(names, decode([parameter.type for parameter in plain], log.data), strict=True))


def _checked(log: Log, where: Address, first_block: int, last_block: int) -> Log:
    """A log that was asked for, and whose content decodes: checked here, so that another endpoint is asked if not."""
    if log.address != where or not first_block <= log.block <= last_block:
        raise BadAnswer("a log that was not asked for")
    _event(log, Block(log.block, 0))
    return log


def _event(log: Log, block: Block) -> base.Event | None:
    """The event in `log`, or None for one that is not of `base.Event`."""
    known = _BY_TOPIC.get(log.topics[0]) if log.topics else None
    if known is None:
        return None
    entry, build = known
    return build(block, log, operands(entry, log))


_Build = Callable[[Block, Log, dict[str, Any]], base.Event]


def _run_of(o: dict[str, Any]) -> tuple[RunId, Digest]:
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


def _by_topic() -> dict[bytes, tuple[Entry, _Build]]:
    entries = {**interface("Staking").events, **interface("RunCoordinator").events}
    return {entries[name].topic: (entries[name], build) for name, build in _BUILDERS.items()}


_BY_TOPIC: Final = _by_topic()


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
