"""Logs of the contracts as one endpoint gives them: of a range of blocks, or of one block by its transactions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from hexbytes import HexBytes
from web3.contract.async_contract import AsyncContractEvent
from web3.exceptions import TransactionNotFound
from web3.types import LogReceipt, TxReceipt

from ledger.base import Address, Digest
from ledger.blocks import Header, read_header
from ledger.endpoints import Web3
from ledger.errors import Reorganised
from ledger.interfaces import interface
from ledger.provider import Refused, TimedOut, TooLarge
from ledger.translation import BadAnswer, reading

PARALLEL_RECEIPTS: Final = 8

Topics = list[list[str] | None]  # for each place of a log's topics those that pass, None for all
Filter = tuple[Address, Topics]


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


class Part(NamedTuple):
    """Of some blocks."""

    last: Header
    logs: list[Log]  # in chain order


async def _header_after(w3: Web3, number: int, after: Header | None) -> Header:
    """One endpoint's header `number`, on the chain that `after` is on. Raises: BadAnswer, Reorganised."""
    header = await read_header(w3, number)
    if header is None:
        raise BadAnswer(f"lags behind block {number}")
    earlier = None if after is None else await read_header(w3, after.number)
    if after is not None and earlier is not None and earlier.hash != after.hash:
        raise Reorganised(
            f"the chain at {w3.provider.label} has replaced block {after.number}, which was read as confirmed: what "
            "this process knows is no longer so. Start it again: it reads the chain anew, and sends nothing twice"
        )
    return header


async def logs_of(filters: Sequence[Filter], first_block: int, last_block: int, after: Header | None, w3: Web3) -> Part:
    """One endpoint's. Raises: BadAnswer, TooWide, Reorganised."""
    header = await _header_after(w3, last_block, after)
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
    return Part(header, [logs[place] for place in sorted(logs)])


async def logs_of_block(filters: Sequence[Filter], number: int, after: Header | None, w3: Web3) -> Part:
    """As `logs_of` of one block, from the receipts of its transactions, of which none fills an answer.

    Raises: BadAnswer, Reorganised.
    """
    header = await _header_after(w3, number, after)
    block = await w3.eth.get_block(number)
    listed: Any = block["transactions"]  # hashes, as asked for
    hashes = [bytes(each) for each in listed]
    logs: list[Log] = []
    for first in range(0, len(hashes), PARALLEL_RECEIPTS):
        some = hashes[first : first + PARALLEL_RECEIPTS]
        for receipt in await asyncio.gather(*(_receipt(w3, transaction) for transaction in some)):
            if (receipt["blockNumber"], bytes(receipt["blockHash"])) != (number, header.hash):
                raise BadAnswer(f"block {number} was replaced while it was read")
            passing = [e for e in receipt["logs"] if any(_passes(e, address, topics) for address, topics in filters)]
            logs += [found for entry in passing if (found := read_log(entry)) is not None]
    if any((each.block, each.block_hash) != (number, header.hash) for each in logs):
        raise BadAnswer(f"logs of another block in receipts of block {number}")
    return Part(header, sorted(logs, key=lambda each: each.index))


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


def _passes(log: LogReceipt, address: Address, topics: Topics) -> bool:
    given = [topic.to_0x_hex() for topic in log["topics"]]
    if str(log["address"]) != address or len(given) < len(topics):
        return False
    return all(options is None or topic in options for topic, options in zip(given, topics, strict=False))


@cache
def _by_topic() -> dict[bytes, AsyncContractEvent]:
    """Of the contracts whose events are read, by first topic."""
    contracts = [interface(name).contract for name in ("Staking", "RunCoordinator")]
    events = [c.events[entry["name"]] for c in contracts for entry in c.abi if entry["type"] == "event"]
    return {bytes.fromhex(event.topic[2:]): event for event in events}
