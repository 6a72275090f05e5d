"""What this machine made or signed and the chain does not have: uncommitted files, transactions without an end."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from ledger.base import Address, Digest, Ledger, State
from ledger.errors import LedgerError
from ledger.journal import Entry, Journal, Stage
from node.config import Home, StateFolder
from node.errors import StoreError
from node.outcomes import Summary
from node.record import Record
from node.rollouts.store import RolloutStore

LEFT_FILES = 32  # files that are looked up, the newest

FATE = {
    Stage.SENT: "signed and sent, not final yet: a running node follows it, the next start sends it again",
    Stage.REVERTED: "the chain refused it",
    Stage.LOST: "another transaction took its nonce: it is not on chain",
    Stage.REFUSED: "no endpoint took its transaction",
    Stage.MINED: "it was on chain and is no longer: the chain was reorganised",
}


class _File(NamedTuple):
    made_at: float
    bytes: int
    commitment: Digest


async def uncommitted(
    ledger: Ledger, record: Record, node: Address, folder: StateFolder | None, home: Home | None
) -> list[Summary]:
    """Rollout files of `node` that belong to no confirmed submission, the newest last. Raises: StoreError."""
    if folder is None:
        return []
    files = await asyncio.to_thread(_files, folder, record)
    signed = {entry.claim.commitment: entry for entry in await _journalled(ledger, node, home) if entry.claim}
    rows = []
    for file in files:
        state = (await ledger.submission(record.run.id, file.commitment)).state
        rows.append(_row(file, state, signed.get(file.commitment), _takes_nothing(record)))
    return rows


def _takes_nothing(record: Record) -> bool:
    return record.ended is not None and (record.latest is None or not record.is_open(record.latest))


async def pending(ledger: Ledger, who: Address, home: Home | None) -> list[Summary]:
    """Transactions of `who` that were signed here, and of which nobody has seen an end. Raises: StoreError."""
    return [
        {
            "account": who,
            "what": entry.what,
            "nonce": entry.nonce,
            "transaction": _transaction(entry),
            "commitment": "0x" + entry.claim.commitment.hex() if entry.claim else None,
            "why": FATE[Stage.SENT],
        }
        for entry in await _journalled(ledger, who, home)
        if entry.stage is Stage.SENT
    ]


def _files(folder: StateFolder, record: Record) -> list[_File]:
    store = RolloutStore(folder.rollouts)
    found = []
    for name in store.list():
        path = store.path(name)
        if name not in record.submissions and path.exists():
            facts = path.stat()
            found.append(_File(facts.st_mtime, facts.st_size, name))
    return sorted(found)[-LEFT_FILES:]


def _row(file: _File, state: State, entry: Entry | None, over: bool) -> Summary:
    version, slot = _place(entry)
    if state != State.NONE:
        fate = "on chain, and not confirmed yet"
    else:
        fate = FATE[entry.stage] if entry is not None else "made, and not committed: nothing was signed for it"
        fate += "; the run has ended, and takes nothing more" if over else ""
    return {
        "commitment": "0x" + file.commitment.hex(),
        "version": version,
        "slot": slot,
        "bytes": file.bytes,
        "made_at": int(file.made_at),
        "transaction": None if entry is None else _transaction(entry),
        "why": fate,
    }


def _place(entry: Entry | None) -> tuple[int | None, int | None]:
    """Version and slot that a signed commitment fills: its claim ends in them."""
    if entry is None or entry.claim is None:
        return None, None
    *_, version, slot = entry.claim.slot.split("/")
    return int(version), int(slot)


def _transaction(entry: Entry) -> str:
    return "0x" + entry.attempts[-1].hash.hex()


async def _journalled(ledger: Ledger, who: Address, home: Home | None) -> list[Entry]:
    """What the key signed here, on the chain that it signed for last: a devnet started anew keeps its chain id."""
    if home is None:
        return []
    entries = await asyncio.to_thread(_signed, home.journal(ledger.chain_id, ledger.coordinator, who))
    return [entry for entry in entries if entry.chain == entries[-1].chain]


def _signed(path: Path) -> list[Entry]:
    """Raises: StoreError."""
    if not path.exists():
        return []
    try:
        journal = Journal(path)
        try:
            return journal.signed()
        finally:
            journal.close()
    except LedgerError as error:
        raise StoreError(f"journal {path} cannot be read: {error}") from error
