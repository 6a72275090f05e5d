"""A signed transaction watched until it is final: sent again when it was dropped, outbid when it is stuck, its failure
explained."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from eth_typing import Hash32
from eth_utils.address import to_checksum_address
from web3.exceptions import TransactionNotFound
from web3.types import LogReceipt, TxParams

from ledger.base import Address, Digest, Receipt
from ledger.blocks import read_header, read_latest
from ledger.endpoints import Endpoints, Web3
from ledger.errors import Reverted, Unconfirmed, Unreachable, reverted
from ledger.fees import Fees, replacement_fees, suggested_fees
from ledger.journal import Attempt, Entry, Journal, Stage
from ledger.signing import Call, Signer
from ledger.translation import BadAnswer

log = logging.getLogger(__name__)

LOST_POLLS: Final = 3  # an endpoint may count a nonce before it serves the receipt


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of the local clock."""

    poll: float
    resend: float = 4.0  # a pool may drop a transaction, and a reorg does
    stuck: float = 30.0  # then a higher fee is offered
    timeout: float = 180.0  # then `Unconfirmed`


@dataclass(frozen=True, slots=True)
class Mined:
    """`created` is the contract that it deployed, if it was to. What failed never leaves the follower."""

    success: bool
    receipt: Receipt
    logs: tuple[LogReceipt, ...]
    created: Address | None


@dataclass(frozen=True, slots=True)
class Look:
    """What one endpoint knows of an entry: the sender's next nonce, then its receipt, then the latest block."""

    nonce: int
    mined: Mined | None
    head: int


class Follower:
    """Follows one key's transactions to their end."""

    def __init__(
        self, endpoints: Endpoints, journal: Journal, signer: Signer, confirmations: int, patience: Patience
    ) -> None:
        self._endpoints = endpoints
        self._journal = journal
        self._signer = signer
        self._confirmations = confirmations
        self._patience = patience

    async def follow(self, entry: Entry) -> Mined | None:
        """Waits until `entry` is mined and confirmed; None where another transaction took its nonce.

        Raises:
            Reverted: it was mined, and the contract refused.
            Unconfirmed: it is not final in time; a later start goes on following it.
        """
        now = asyncio.get_running_loop().time
        end, resend_at, outbid_at = (now() + wait for wait in self._waits())
        gone = 0
        while gone < LOST_POLLS:
            look = await self._look_or_none(entry)
            if look is not None and look.mined is None and (look.nonce > entry.nonce or now() >= resend_at):
                await self.resend(entry)
                resend_at = now() + self._patience.resend
                look = await self._look_everywhere(entry) or look
            mined = await self._final(entry, look)
            if mined is not None:
                return mined
            absent = look is not None and look.mined is None
            gone = gone + 1 if absent and look is not None and look.nonce > entry.nonce else 0
            if absent and now() >= outbid_at:
                entry, outbid_at = await self._outbid(entry), now() + self._patience.stuck
            if now() >= end:
                raise Unconfirmed(f"{entry.what}: transaction 0x{entry.attempts[-1].hash.hex()} is not final yet")
            await asyncio.sleep(self._patience.poll)
        await self.finish(entry, Stage.LOST)
        return None

    async def look(self, entry: Entry) -> Look:
        """One endpoint's view of `entry`. Raises: Unreachable."""
        return await self._endpoints.ask(partial(_look, self._signer.address, entry))

    async def block_of(self, entry: Entry) -> int:
        """A block by which an entry that was mined counts; endpoints that lag behind that are waited for.

        Raises: Unreachable.
        """
        now = asyncio.get_running_loop().time
        end = now() + self._patience.timeout
        while True:
            look = await self.look(entry)
            if look.mined is None:
                look = await self._look_everywhere(entry) or look
            if look.mined is not None:
                return look.mined.receipt.block.number
            # Endpoints forget old receipts; what a reorg undid never comes.
            if look.nonce > entry.nonce or now() >= end:
                return look.head
            await asyncio.sleep(self._patience.poll)

    async def push(self, entry: Entry, *, everywhere: bool = False) -> None:
        """Sends the latest attempt of `entry`: to one endpoint, or to all, whatever they say of it.

        Raises: Refused, Unreachable: by the one.
        """
        question = partial(_push, entry.attempts[-1])
        if everywhere:
            await self._endpoints.each(question)
        else:
            await self._endpoints.ask(question)

    async def resend(self, entry: Entry) -> None:
        """The same bytes once more: an endpoint that took them may have dropped them. Following finds out."""
        await self.push(entry, everywhere=True)

    async def finish(self, entry: Entry, stage: Stage) -> None:
        await asyncio.to_thread(self._journal.finish, entry.id, stage)

    def _waits(self) -> tuple[float, float, float]:
        return self._patience.timeout, self._patience.resend, self._patience.stuck

    async def _look_or_none(self, entry: Entry) -> Look | None:
        try:
            return await self.look(entry)
        except Unreachable as problem:
            log.debug("%s: %s", entry.what, problem)
            return None

    async def _look_everywhere(self, entry: Entry) -> Look | None:
        """The view of an endpoint that has a receipt of `entry`, if one has."""
        looks = await self._endpoints.each(partial(_look, self._signer.address, entry))
        return next((look for look in looks if look.mined is not None), None)

    async def _final(self, entry: Entry, look: Look | None) -> Mined | None:
        """The end of `entry`, if it has come and can be told. Raises: Reverted."""
        mined = None if look is None else look.mined
        if look is None or mined is None or look.head < mined.receipt.block.number + self._confirmations:
            return None
        await self.finish(entry, Stage.MINED if mined.success else Stage.REVERTED)
        if not mined.success:
            raise await self._reason(entry, mined.receipt)
        return mined

    async def _outbid(self, entry: Entry) -> Entry:
        """Replaces a stuck transaction by one with the same nonce and call and a higher fee, if the limit permits."""
        last = entry.attempts[-1]
        try:
            now = await suggested_fees(self._endpoints)
        except Unreachable:
            return entry
        fees = replacement_fees(Fees(last.max_fee, last.priority_fee), now)
        if fees is None:
            return entry
        call = Call(entry.what, entry.to, entry.data, entry.value)
        attempt = self._signer.sign(call, entry.nonce, entry.gas, fees)
        await asyncio.to_thread(self._journal.sign, entry.id, entry.nonce, entry.gas, attempt)
        log.info("%s is stuck: offering %d wei per gas", entry.what, fees.most)
        replaced = await asyncio.to_thread(self._journal.entry, entry.id)
        await self.resend(replaced)
        return replaced

    async def _reason(self, entry: Entry, receipt: Receipt) -> Reverted:
        """Why a mined transaction failed: its call replayed after its block, then before."""
        call = self._signer.unsigned(Call(entry.what, entry.to, entry.data, entry.value))
        for block in (receipt.block.number, receipt.block.number - 1):
            try:
                await self._endpoints.ask(partial(_replay, call, block))
            except Reverted as reason:
                return reason
            except Unreachable as problem:
                log.debug("replay of %s: %s", entry.what, problem)
        return reverted(
            "OutOfGas" if receipt.gas_used >= entry.gas else "NoReason", {"transaction": receipt.transaction}
        )


async def _look(sender: Address, entry: Entry, w3: Web3) -> Look:
    nonce = await w3.eth.get_transaction_count(to_checksum_address(sender), "latest")
    mined = [await _mined(w3, attempt.hash) for attempt in entry.attempts]
    found = [one for one in mined if one is not None]
    return Look(nonce, found[0] if found else None, (await read_latest(w3)).number)


async def _push(attempt: Attempt, w3: Web3) -> None:
    if bytes(await w3.eth.send_raw_transaction(attempt.raw)) != attempt.hash:
        raise BadAnswer("the hash of another transaction")


async def _replay(call: TxParams, block: int, w3: Web3) -> None:
    await w3.eth.call(call, block)


async def _mined(w3: Web3, hash_: Digest) -> Mined | None:
    """One endpoint's receipt of transaction `hash_`, None while there is none."""
    try:
        receipt = await w3.eth.get_transaction_receipt(Hash32(hash_))
    except TransactionNotFound:
        return None
    if bytes(receipt["transactionHash"]) != hash_:
        raise BadAnswer("the receipt of another transaction")
    header = await read_header(w3, receipt["blockNumber"])
    if header is None:
        raise BadAnswer("a receipt of a block that is not there")
    created = receipt["contractAddress"]
    return Mined(
        success=receipt["status"] == 1,
        receipt=Receipt(hash_, header.block, receipt["gasUsed"]),
        logs=tuple(receipt["logs"]),
        created=None if created is None else Address(created),
    )
