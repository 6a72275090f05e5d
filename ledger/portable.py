"""A journal as JSON, so that a backup or another machine refuses to sign what this one already signed otherwise."""

from typing import Annotated, Final, Literal

from eth_utils.crypto import keccak
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ledger.base import Address, Digest
from ledger.errors import LedgerError
from ledger.journal import Attempt, Entry, Journal, SlotClaim, Stage

MAX_BYTES: Final = 256 * 2**20  # about 200,000 transactions

_Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$")]
_Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Wei = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,78}$")]
_Address = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$")]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=400)]
_Natural = Annotated[int, Field(ge=0, lt=2**63)]


class NotExported(LedgerError):
    """A file that is not what `export_journal` makes."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Claim(_Part):
    slot: _Name
    commitment: _Hex32


class _Attempt(_Part):
    hash: _Hex32
    raw: _Hex
    max_fee: _Wei
    priority_fee: _Wei


class _Entry(_Part):
    chain: _Name
    sender: _Address
    what: _Name
    to: _Address | None
    data: _Hex
    value: _Wei
    gas: _Natural
    stage: Literal["sent", "mined", "reverted", "lost", "refused"]
    nonce: _Natural
    claim: _Claim | None
    attempts: Annotated[list[_Attempt], Field(min_length=1)]


class _File(_Part):
    format: Literal[1]
    entries: list[_Entry]


def export_journal(journal: Journal) -> str:
    """Everything that `journal` signed, as JSON."""
    entries = [_written(entry) for entry in journal.signed()]
    return _File.model_validate({"format": 1, "entries": entries}).model_dump_json(indent=1) + "\n"


def exported_entries(content: str) -> list[Entry]:
    """What another journal exported, for `Journal.add`.

    Raises: NotExported.
    """
    if len(content) > MAX_BYTES:
        raise NotExported(f"an exported journal over {MAX_BYTES} bytes")
    try:
        file = _File.model_validate_json(content)
    except ValidationError:
        raise NotExported("not an exported journal: another file, or one that was changed or cut short") from None
    return [_read(entry) for entry in file.entries]


def _written(entry: Entry) -> dict[str, object]:
    claim = entry.claim and {"slot": entry.claim.slot, "commitment": entry.claim.commitment.hex()}
    attempts = [
        {"hash": a.hash.hex(), "raw": a.raw.hex(), "max_fee": str(a.max_fee), "priority_fee": str(a.priority_fee)}
        for a in entry.attempts
    ]
    return {
        "chain": entry.chain, "sender": entry.sender, "what": entry.what, "to": entry.to, "data": entry.data.hex(),
        "value": str(entry.value), "gas": entry.gas, "stage": entry.stage.value, "nonce": entry.nonce,
        "claim": claim, "attempts": attempts,
    }  # fmt: skip


def _read(entry: _Entry) -> Entry:
    return Entry(
        id=0,
        chain=entry.chain,
        sender=Address(entry.sender),
        what=entry.what,
        to=Address(entry.to) if entry.to else None,
        data=bytes.fromhex(entry.data),
        value=int(entry.value),
        gas=entry.gas,
        stage=Stage(entry.stage),
        nonce=entry.nonce,
        claim=SlotClaim(entry.claim.slot, Digest(bytes.fromhex(entry.claim.commitment))) if entry.claim else None,
        attempts=tuple(map(_attempt, entry.attempts)),
    )


def _attempt(attempt: _Attempt) -> Attempt:
    hash_, raw = Digest(bytes.fromhex(attempt.hash)), bytes.fromhex(attempt.raw)
    if keccak(raw) != hash_:
        raise NotExported(f"not an exported journal: transaction 0x{attempt.hash} has another hash")
    return Attempt(hash_, raw, int(attempt.max_fee), int(attempt.priority_fee))
