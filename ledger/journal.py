"""What one machine signed: every transaction's raw bytes on disk before they are sent, and what became of them.

A transaction is an intent, then sent (one attempt per fee, all of one nonce), then mined, reverted, lost or refused. A
slot belongs to the first commitment that was signed for it, for ever, so that neither a crash nor a restored backup
signs a second one. Leaves out the JSON form (`portable`).
"""

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ledger.base import Address, Digest
from ledger.disk import DISK_FULL
from ledger.errors import LedgerError
from ledger.translation import printable

FORMAT: Final = 1  # of the database
MAX_TEXT: Final = 400  # characters of a name or a slot
MAX_BYTES: Final = 2**20  # of a transaction; geth's pool takes 128 KiB


class JournalError(LedgerError):
    """The journal cannot be opened, written or imported; nothing is signed without it."""


class SlotTaken(LedgerError):
    """Another commitment was signed for this slot before: a second one is never signed."""


class Stage(StrEnum):
    INTENT = "intent"  # nothing was signed
    SENT = "sent"  # signed; perhaps sent, perhaps mined
    MINED = "mined"
    REVERTED = "reverted"  # mined, and the contract refused
    LOST = "lost"  # another transaction took its nonce: it can never be mined
    REFUSED = "refused"  # the endpoints refused it: it was never in a pool


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """The slot (contract, run, node, version, slot; as one text) that a `submit` fills, and with which commitment."""

    slot: str
    commitment: Digest


@dataclass(frozen=True, slots=True)
class Attempt:
    """One signed transaction: all attempts of an entry share its nonce and its call."""

    hash: Digest
    raw: bytes
    max_fee: int  # wei per gas
    priority_fee: int  # wei per gas


@dataclass(frozen=True, slots=True)
class Entry:
    """`chain` names one chain and its genesis; `to` is None where a contract is created; `attempts` in order."""

    id: int
    chain: str
    sender: Address
    what: str
    to: Address | None
    data: bytes
    value: int
    gas: int
    stage: Stage
    nonce: int  # -1 while nothing is signed
    claim: SlotClaim | None
    attempts: tuple[Attempt, ...]


SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY, chain TEXT NOT NULL, sender TEXT NOT NULL, what TEXT NOT NULL, "to" TEXT,
    data BLOB NOT NULL, value TEXT NOT NULL, gas INTEGER NOT NULL, stage TEXT NOT NULL, nonce INTEGER,
    slot TEXT, commitment BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS entry_stage ON entry (chain, sender, stage);
CREATE INDEX IF NOT EXISTS entry_slot ON entry (chain, slot);
CREATE TABLE IF NOT EXISTS attempt (
    hash BLOB PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entry (id), raw BLOB NOT NULL,
    max_fee TEXT NOT NULL, priority_fee TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS attempt_entry ON attempt (entry);
CREATE TABLE IF NOT EXISTS slot (
    chain TEXT NOT NULL, slot TEXT NOT NULL, commitment BLOB NOT NULL, PRIMARY KEY (chain, slot)
) STRICT;
"""


# what reading a damaged file comes to: the library's errors, texts that are none, rows that `_entry` does not take
_BROKEN: Final = (sqlite3.Error, ValueError, TypeError)


class Journal:
    """A journal in one SQLite file, or in memory without `path`. Calls block (an fsync each): run them in a thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Opens or creates the file. Raises: JournalError."""
        self._lock = threading.Lock()
        self._name = "journal" if path is None else f"journal {path}"
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version not in {0, FORMAT}:
                raise JournalError(f"journal {path} has format {version}, this program reads {FORMAT}")
            self._database.executescript(SCHEMA + f"PRAGMA user_version = {FORMAT};")
        except (*_BROKEN, OSError) as problem:
            raise JournalError(_explained(self._name, problem)) from problem

    def close(self) -> None:
        """Waits for what another thread is writing: to close the database under it would crash the process."""
        with self._lock:
            self._database.close()

    def intend(
        self,
        chain: str,
        sender: Address,
        what: str,
        to: Address | None,
        data: bytes,
        value: int,
        claim: SlotClaim | None,
    ) -> int:
        """Writes down what is about to be signed; the number is the entry's."""
        with self._writing() as database:
            cursor = database.execute(
                'INSERT INTO entry (chain, sender, what, "to", data, value, gas, stage, slot, commitment)'
                " VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
                (chain, sender, what, to, data, str(value), Stage.INTENT, *_claimed(claim)),
            )
            return int(cursor.lastrowid or 0)

    def sign(self, number: int, nonce: int, gas: int, attempt: Attempt) -> None:
        """Writes down a signed transaction of entry `number` before it is sent.

        Raises:
            SlotTaken: another commitment was signed for the entry's slot.
        """
        with self._writing() as database:
            chain, slot, commitment = database.execute(
                "SELECT chain, slot, commitment FROM entry WHERE id = ?", (number,)
            ).fetchone()
            if slot is not None:
                _claim(database, _text(chain), _text(slot), _hash(commitment))
            database.execute(
                "UPDATE entry SET stage = ?, nonce = ?, gas = ? WHERE id = ?", (Stage.SENT, nonce, gas, number)
            )
            _add_attempts(database, number, [attempt])

    def finish(self, number: int, stage: Stage) -> None:
        with self._writing() as database:
            database.execute("UPDATE entry SET stage = ? WHERE id = ?", (stage, number))

    def entry(self, number: int) -> Entry:
        (entry,) = self._entries("id = ?", (number,))
        return entry

    def unfinished(self, chain: str, sender: Address) -> list[Entry]:
        """What `sender` sent and nobody has seen mined or lost, by nonce."""
        return self._entries("chain = ? AND sender = ? AND stage = ? ORDER BY nonce", (chain, sender, Stage.SENT))

    def last_mined(self, chain: str, sender: Address) -> Entry | None:
        """What `sender` sent and saw mined, of the highest nonce: nothing else of that key was mined later."""
        entries = self._entries(
            "chain = ? AND sender = ? AND stage = ? ORDER BY nonce DESC LIMIT 1", (chain, sender, Stage.MINED)
        )
        return entries[0] if entries else None

    def submission(self, chain: str, claim: SlotClaim) -> Entry | None:
        """The latest entry that was signed for this slot and commitment, if there is one."""
        entries = self._entries(
            "chain = ? AND slot = ? AND commitment = ? AND stage != ? ORDER BY id DESC LIMIT 1",
            (chain, claim.slot, claim.commitment, Stage.INTENT),
        )
        return entries[0] if entries else None

    def signed(self) -> list[Entry]:
        """Everything that was ever signed, in order."""
        return self._entries("stage != ? ORDER BY id", (Stage.INTENT,))

    def add(self, entries: Sequence[Entry]) -> int:
        """Adds what another journal signed; how many entries were new. One that is known keeps its stage.

        Raises:
            SlotTaken: the two journals signed different commitments for one slot; nothing is added then.
        """
        with self._writing() as database:
            return sum(_add(database, entry) for entry in entries)

    def _entries(self, where: str, values: Sequence[object]) -> list[Entry]:
        with self._reading() as database:
            rows = database.execute(
                'SELECT id, chain, sender, what, "to", data, value, gas, stage, nonce, slot, commitment'
                f" FROM entry WHERE {where}",
                values,
            ).fetchall()
            return [_entry(database, row) for row in rows]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._database
            except _BROKEN as problem:
                raise JournalError(_explained(self._name, problem)) from problem

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing, on disk at the end."""
        with self._reading() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            finally:
                if database.in_transaction:  # it did not come to the COMMIT, nor has a full disk ended it
                    database.execute("ROLLBACK")


def _explained(name: str, problem: Exception) -> str:
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF  # the rest of it only says where
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) or getattr(problem, "errno", 0) in DISK_FULL:
        advice = (
            "its disk is full or failing, and nothing is signed that is not written down. Make room, then run this "
            "again: it goes on from there"
        )
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or isinstance(
        problem, OSError | sqlite3.ProgrammingError
    ):
        advice = "it cannot be opened for writing. Correct the owner or mode of it and of its folder"
    elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        advice = "see whether another process of this key hangs"
    else:
        advice = (
            "it is damaged or no journal. Move it away and import its last backup (`intellect-node journal import`): "
            "without one, what this key has under way is unknown here, and the chain still counts its slots"
        )
    return f"{name}: {printable(str(problem))}: {advice}"


def _claimed(claim: SlotClaim | None) -> tuple[str | None, bytes | None]:
    return (claim.slot, claim.commitment) if claim else (None, None)


def _claim(database: sqlite3.Connection, chain: str, slot: str, commitment: bytes) -> None:
    """Gives `slot` to `commitment` unless another one has it."""
    database.execute("INSERT OR IGNORE INTO slot VALUES (?, ?, ?)", (chain, slot, commitment))
    (owner,) = database.execute("SELECT commitment FROM slot WHERE chain = ? AND slot = ?", (chain, slot)).fetchone()
    if _hash(owner) != commitment:
        raise SlotTaken(f"slot {slot} on {chain}: 0x{owner.hex()} was signed, so 0x{commitment.hex()} is not")


def _add_attempts(database: sqlite3.Connection, number: int, attempts: Sequence[Attempt]) -> None:
    database.executemany(
        "INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, ?, ?)",
        [(a.hash, number, a.raw, str(a.max_fee), str(a.priority_fee)) for a in attempts],
    )


def _add(database: sqlite3.Connection, entry: Entry) -> bool:
    """Whether `entry` was new."""
    if entry.claim:
        _claim(database, entry.chain, entry.claim.slot, entry.claim.commitment)
    for attempt in entry.attempts:
        if database.execute("SELECT 1 FROM attempt WHERE hash = ?", (attempt.hash,)).fetchone():
            return False
    cursor = database.execute(
        'INSERT INTO entry (chain, sender, what, "to", data, value, gas, stage, nonce, slot, commitment)'
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.chain, entry.sender, entry.what, entry.to, entry.data, str(entry.value), entry.gas, entry.stage,
            entry.nonce, *_claimed(entry.claim),
        ),
    )  # fmt: skip
    _add_attempts(database, int(cursor.lastrowid or 0), entry.attempts)
    return True


def _entry(database: sqlite3.Connection, row: Sequence[object]) -> Entry:
    """The entry in `row`, which a damaged file may have filled with anything. Raises: ValueError."""
    number, chain, sender, what, to, data, value, gas, stage, nonce, slot, commitment = row
    attempts = database.execute(
        "SELECT hash, raw, max_fee, priority_fee FROM attempt WHERE entry = ? ORDER BY rowid", (number,)
    ).fetchall()
    return Entry(
        _natural(number), _text(chain), _address(sender), _text(what), None if to is None else _address(to),
        _bytes(data), _wei(value), _natural(gas), Stage(_text(stage)), -1 if nonce is None else _natural(nonce),
        None if slot is None else SlotClaim(_text(slot), _hash(commitment)),
        tuple(Attempt(_hash(hash_), _bytes(raw), _wei(most), _wei(tip)) for hash_, raw, most, tip in attempts),
    )  # fmt: skip


def _text(value: object, form: str = f".{{1,{MAX_TEXT}}}") -> str:
    if not isinstance(value, str) or not re.fullmatch(form, value, re.ASCII):
        raise ValueError("a text of another form in a row")
    return value


def _address(value: object) -> Address:
    return Address(_text(value, "0x[0-9a-fA-F]{40}"))


def _wei(value: object) -> int:
    return int(_text(value, "[0-9]{1,78}"))


def _natural(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("no number in a row")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) > MAX_BYTES:
        raise ValueError("no bytes of a transaction in a row")
    return value


def _hash(value: object) -> Digest:
    found = Digest(_bytes(value))
    if len(found) != 32:
        raise ValueError("a hash of another length in a row")
    return found
