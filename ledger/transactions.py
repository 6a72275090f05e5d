"""A call becomes a mined transaction exactly once: simulated, signed on one nonce lane, journalled, sent, followed.

A killed process loses nothing: what was journalled is sent again, byte for byte, at the next start.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from ledger.blocks import Headers
from ledger.endpoints import Endpoints
from ledger.errors import LedgerError, Reverted, Unconfirmed, Unreachable, reverted
from ledger.fees import Fees, gas_limit, suggested_fees
from ledger.following import Follower, Mined, Patience
from ledger.journal import Entry, Journal, SlotClaim, Stage
from ledger.provider import Refused
from ledger.signing import Call, Signer

log = logging.getLogger(__name__)

# What clients say, in their words, of a transaction that they do not take (geth, op-geth, reth, erigon, anvil).
NONCE_TAKEN: Final = ("nonce too low", "nonce is too low", "oldnonce", "underpriced")
CANNOT_PAY: Final = ("insufficient funds", "insufficient balance")

POLL_SECONDS: Final = 1.0  # half of Base's block time
DEVNET_POLL_SECONDS: Final = 0.2  # a fifth of anvil's, with --block-time 1
REPEAT_POLLS: Final = 4  # before a refusal is asked for again: two of Base's blocks
SIGNING_TRIES: Final = 5  # another process may use the key; each try takes a later nonce


class Sender:
    """The transactions of one key on one chain. `chain` names the chain and its genesis, for the journal."""

    def __init__(self, endpoints: Endpoints, journal: Journal, chain: str, signer: Signer, follower: Follower) -> None:
        self._endpoints = endpoints
        self._journal = journal
        self._chain = chain
        self._signer = signer
        self._follower = follower
        self._lane = asyncio.Lock()
        self._resumed: dict[int, asyncio.Task[None]] = {}  # by entry
        self.address = signer.address

    async def send(self, call: Call) -> Mined:
        """Does `call` and waits until it is mined and confirmed. Refusals before are as `Endpoints.insist` says.

        A `submit` that was signed before and can still be mined is not signed again: that transaction is followed.

        Raises:
            Reverted: in simulation or on chain.
            SlotTaken: another commitment was signed for its slot.
            Unreachable: nothing was sent.
            Unconfirmed: it was sent, and is not final in time.
        """
        for _ in range(SIGNING_TRIES):
            mined = await self._follower.follow(await self._endpoints.insist(lambda: self._sent(call)))
            if mined is not None:
                return mined
        raise Unconfirmed(f"{call.what}: other transactions keep taking the nonces of {self.address}")

    async def _sent(self, call: Call) -> Entry:
        entry = await self._in_flight(call.claim)
        if entry is None:
            await self.simulate(call)
            async with self._lane:
                entry = await self._in_flight(call.claim) or await self._sign_and_send(call)
        return entry

    async def simulate(self, call: Call) -> None:
        """Raises: Reverted, as the call would be now."""
        await self._endpoints.ask(lambda w3: w3.eth.call(self._signer.unsigned(call), "latest"))

    async def resume(self) -> None:
        """Sends again, byte for byte, what an earlier process left unfinished, and follows it in the background."""
        for entry in await self._unfinished():
            log.info("sending %s again, nonce %d", entry.what, entry.nonce)
            await self._follower.resend(entry)
            self._resumed[entry.id] = asyncio.create_task(self._follow_quietly(entry))

    async def finish_earlier(self) -> int:
        """Waits until nothing that an earlier process sent is on its way. A block by which all of it counts, also what
        that process saw mined itself; 0 where nothing ever was.

        Raises:
            Unconfirmed: something is not final after all patience.
            Unreachable.
        """
        await asyncio.gather(*self._resumed.values())
        for entry in await self._unfinished():
            if entry.id in self._resumed:
                raise Unconfirmed(f"{entry.what}: transaction 0x{entry.attempts[-1].hash.hex()} is not final yet")
        last = await asyncio.to_thread(self._journal.last_mined, self._chain, self.address)
        return 0 if last is None else await self._follower.block_of(last)

    async def close(self) -> None:
        tasks = tuple(self._resumed.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._journal.close)

    async def _follow_quietly(self, entry: Entry) -> None:
        try:
            await self._follower.follow(entry)
        except LedgerError as problem:
            log.warning("%s of an earlier process: %s", entry.what, problem)

    async def _in_flight(self, claim: SlotClaim | None) -> Entry | None:
        """The unfinished transaction that already carries this commitment, if there is one."""
        if claim is None:
            return None
        entry = await asyncio.to_thread(self._journal.submission, self._chain, claim)
        return entry if entry is not None and entry.stage is Stage.SENT else None

    async def _unfinished(self) -> list[Entry]:
        return await asyncio.to_thread(self._journal.unfinished, self._chain, self.address)

    # --- Under the lane's lock

    async def _sign_and_send(self, call: Call) -> Entry:
        unsigned = self._signer.unsigned(call)
        gas = gas_limit(await self._endpoints.ask(lambda w3: w3.eth.estimate_gas(unsigned, "latest")))
        fees = await suggested_fees(self._endpoints)
        await self._require_funds(gas * fees.most + call.value)
        least = 0
        for _ in range(SIGNING_TRIES):
            nonce = max(least, await self._next_nonce())
            entry = await asyncio.to_thread(self._sign, call, nonce, gas, fees)
            if await self._broadcast(entry):
                return entry
            least = nonce + 1
        raise Unreachable(f"{call.what}: no nonce of {self.address} is free")

    async def _require_funds(self, cost: int) -> None:
        balance = await self._endpoints.ask(lambda w3: w3.eth.get_balance(to_checksum_address(self.address), "latest"))
        if balance < cost:
            raise self._cannot_pay(balance=balance, needed=cost)

    def _cannot_pay(self, **values: int) -> Reverted:
        return reverted("InsufficientNativeBalance", {"account": self.address, **values})

    async def _next_nonce(self) -> int:
        """The first nonce that neither the chain nor the journal has used.

        Transactions that the endpoint's pool has lost are sent again first: a gap would hold up all that follow.
        """
        pending = await self._endpoints.ask(
            lambda w3: w3.eth.get_transaction_count(to_checksum_address(self.address), "pending")
        )
        missing = [entry for entry in await self._unfinished() if entry.nonce >= pending]
        for entry in missing:
            await self._follower.resend(entry)
        return max([pending, *(entry.nonce + 1 for entry in missing)])

    def _sign(self, call: Call, nonce: int, gas: int, fees: Fees) -> Entry:
        """Intent, then signature, both on disk before the transaction can leave."""
        number = self._journal.intend(self._chain, self.address, call.what, call.to, call.data, call.value, call.claim)
        self._journal.sign(number, nonce, gas, self._signer.sign(call, nonce, gas, fees))
        return self._journal.entry(number)

    async def _broadcast(self, entry: Entry) -> bool:
        """Sends a new entry. False where its nonce belongs to another transaction, and the entry is given up.

        Any other answer, and none, counts as sent: following it finds out. Raises: Reverted where the account
        cannot pay.
        """
        try:
            await self._follower.push(entry)
        except Refused as problem:
            words = str(problem).lower()
            if any(phrase in words for phrase in CANNOT_PAY):
                await self._follower.finish(entry, Stage.REFUSED)
                needed = entry.gas * entry.attempts[-1].max_fee + entry.value
                raise self._cannot_pay(needed=needed) from problem
            return not any(phrase in words for phrase in NONCE_TAKEN) or await self._arrived(entry)
        except Unreachable as problem:
            log.debug("%s: %s", entry.what, problem)
        return True

    async def _arrived(self, entry: Entry) -> bool:
        """Whether an entry whose nonce is taken took it itself."""
        look = await self._follower.look(entry)
        if look.mined is None:
            await self._follower.finish(entry, Stage.LOST if look.nonce > entry.nonce else Stage.REFUSED)
        return look.mined is not None


async def open_sender(
    endpoints: Endpoints,
    account: LocalAccount,
    journal: Path | None,
    chain_id: int,
    confirmations: int,
    patience: Patience | None = None,
) -> Sender:
    """A sender for `account`, and what its journal left unfinished under way again.

    Without `journal` nothing outlives the process. The journal tells chains apart by their genesis too: a devnet that
    was started anew has the same chain id, addresses and nonces.

    Raises: Unreachable, JournalError.
    """
    genesis = await Headers(endpoints).require(0)
    patience = patience or await _patience(endpoints)
    endpoints.repeat_seconds = REPEAT_POLLS * patience.poll
    written = await asyncio.to_thread(Journal, journal)
    signer = Signer(account, chain_id)
    follower = Follower(endpoints, written, signer, confirmations, patience)
    sender = Sender(endpoints, written, f"{chain_id}/0x{genesis.hash.hex()}", signer, follower)
    await sender.resume()
    return sender


async def _patience(endpoints: Endpoints) -> Patience:
    return Patience(DEVNET_POLL_SECONDS if await endpoints.is_anvil() else POLL_SECONDS)
