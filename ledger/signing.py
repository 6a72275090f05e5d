"""A call as an endpoint is asked about it, and as a signed transaction."""

from dataclasses import dataclass

from eth_account.signers.local import LocalAccount
from eth_account.types import TransactionDictType
from eth_typing import HexStr
from eth_utils.address import to_checksum_address
from web3.types import TxParams, Wei

from ledger.base import Address, Digest
from ledger.fees import Fees
from ledger.journal import Attempt, SlotClaim


@dataclass(frozen=True, slots=True)
class Call:
    """`to` None creates a contract. `claim` is the slot that a `submit` fills."""

    what: str
    to: Address | None
    data: bytes
    value: int = 0
    claim: SlotClaim | None = None


class Signer:
    """One key on one chain."""

    def __init__(self, account: LocalAccount, chain_id: int) -> None:
        self._account = account
        self._chain_id = chain_id
        self.address = Address(account.address)

    def unsigned(self, call: Call) -> TxParams:
        """What `eth.call` and `eth.estimate_gas` take."""
        transaction: TxParams = {
            "from": self._account.address,
            "data": HexStr("0x" + call.data.hex()),
            "value": Wei(call.value),
        }
        if call.to is not None:
            transaction["to"] = to_checksum_address(call.to)
        return transaction

    def sign(self, call: Call, nonce: int, gas: int, fees: Fees) -> Attempt:
        """A type 2 transaction (EIP-1559)."""
        transaction: TransactionDictType = {
            "type": 2,
            "chainId": self._chain_id,
            "nonce": nonce,
            "value": call.value,
            "data": call.data,
            "gas": gas,
            "maxFeePerGas": fees.most,
            "maxPriorityFeePerGas": fees.priority,
        }
        if call.to is not None:
            transaction["to"] = bytes.fromhex(call.to.removeprefix("0x"))
        signed = self._account.sign_transaction(transaction)
        return Attempt(Digest(bytes(signed.hash)), bytes(signed.raw_transaction), fees.most, fees.priority)
