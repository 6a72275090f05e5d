"""The journal: what was signed stays, nothing is signed twice, and a copy knows as much."""

import json
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from eth_utils import keccak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.base import Address, Digest
from ledger.journal import Attempt, Journal, JournalError, SlotClaim, SlotTaken, Stage
from ledger.portable import NotExported, export_journal, exported_entries

SENDER = Address("0x00000000000000000000000000000000000000AA")
OTHER = Address("0x00000000000000000000000000000000000000bb")
FIRST, SECOND = (Digest(bytes([value]) * 32) for value in (1, 2))
SLOT = "coordinator/1/node/0/0"


def _attempt(raw: bytes, fee: int = 5) -> Attempt:
    return Attempt(Digest(keccak(raw)), raw, fee, 1)


def _sent(
    journal: Journal, raw: bytes, claim: SlotClaim | None = None, chain: str = "31337", nonce: int = 0, value: int = 0
) -> int:
    number = journal.intend(chain, SENDER, "submit", OTHER, b"data", value, claim)
    journal.sign(number, nonce, 21_000, _attempt(raw))
    return number


def test_what_was_signed_is_there_after_a_new_start(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    number = _sent(journal, b"raw", SlotClaim(SLOT, FIRST), value=2**200)
    journal.sign(number, 0, 21_000, _attempt(b"dearer", 6))
    journal.close()

    again = Journal(tmp_path / "journal")
    (entry,) = again.unfinished("31337", SENDER)
    again.close()

    assert (entry.what, entry.to, entry.data, entry.value, entry.nonce) == ("submit", OTHER, b"data", 2**200, 0)
    assert entry.claim == SlotClaim(SLOT, FIRST)
    assert entry.attempts == (_attempt(b"raw"), _attempt(b"dearer", 6))


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    settings_ = [journal._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    journal.close()
    assert settings_ == ["wal", 2]  # 2 is FULL: https://sqlite.org/pragma.html#pragma_synchronous


CLOSED_WHILE_WRITING = """
import sys
import threading
from pathlib import Path

from ledger.base import Address
from ledger.journal import Journal, JournalError

def write(journal):
    try:
        while True:
            journal.intend("1", Address("0x" + "00" * 20), "x", None, b"", 0, None)
    except JournalError:
        pass

for number in range(30):
    journal = Journal(Path(sys.argv[1]) / str(number))
    threads = [threading.Thread(target=write, args=(journal,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    journal.close()
    for thread in threads:
        thread.join()
"""


def test_closing_a_journal_that_another_thread_writes_does_not_crash_the_process(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", CLOSED_WHILE_WRITING, str(tmp_path)], check=False)
    assert child.returncode == 0


def test_only_what_was_sent_and_has_no_end_is_unfinished() -> None:
    journal = Journal()
    journal.intend("31337", SENDER, "submit", None, b"", 0, None)
    numbers = {stage: _sent(journal, stage.encode(), nonce=i) for i, stage in enumerate(Stage)}
    for stage, number in numbers.items():
        journal.finish(number, stage)
    _sent(journal, b"elsewhere", chain="84532")

    assert [entry.id for entry in journal.unfinished("31337", SENDER)] == [numbers[Stage.SENT]]
    assert journal.unfinished("31337", OTHER) == []
    journal.close()


def test_a_slot_takes_one_commitment_for_ever() -> None:
    journal = Journal()
    number = _sent(journal, b"one", SlotClaim(SLOT, FIRST))
    journal.finish(number, Stage.LOST)
    rival = journal.intend("31337", SENDER, "submit", OTHER, b"", 0, SlotClaim(SLOT, SECOND))

    with pytest.raises(SlotTaken):
        journal.sign(rival, 1, 21_000, _attempt(b"two"))

    assert journal.entry(rival).stage is Stage.INTENT
    assert journal.entry(rival).attempts == ()
    assert _sent(journal, b"three", SlotClaim(SLOT, FIRST), nonce=1)
    assert _sent(journal, b"four", SlotClaim(SLOT, SECOND), chain="84532")
    assert _sent(journal, b"five", SlotClaim(SLOT + "1", SECOND), nonce=2)
    journal.close()


def test_an_intent_takes_no_slot() -> None:
    journal = Journal()
    journal.intend("31337", SENDER, "submit", OTHER, b"", 0, SlotClaim(SLOT, FIRST))
    assert _sent(journal, b"raw", SlotClaim(SLOT, SECOND))
    assert journal.submission("31337", SlotClaim(SLOT, FIRST)) is None
    assert journal.submission("31337", SlotClaim(SLOT, SECOND)) is not None
    journal.close()


def test_a_restored_copy_refuses_what_the_original_refuses() -> None:
    original, copy = Journal(), Journal()
    _sent(original, b"raw", SlotClaim(SLOT, FIRST))
    original.finish(_sent(original, b"second", nonce=1), Stage.MINED)
    original.intend("31337", SENDER, "claim", None, b"", 0, None)

    assert copy.add(exported_entries(export_journal(original))) == 2
    assert copy.add(exported_entries(export_journal(original))) == 0

    assert export_journal(copy) == export_journal(original)
    assert [entry.attempts for entry in copy.unfinished("31337", SENDER)] == [(_attempt(b"raw"),)]
    rival = copy.intend("31337", SENDER, "submit", OTHER, b"", 0, SlotClaim(SLOT, SECOND))
    with pytest.raises(SlotTaken):
        copy.sign(rival, 2, 21_000, _attempt(b"rival"))
    original.close()
    copy.close()


def test_two_journals_that_disagree_are_not_merged() -> None:
    one, two = Journal(), Journal()
    _sent(one, b"free", nonce=7)
    _sent(one, b"raw", SlotClaim(SLOT, FIRST))
    _sent(two, b"other", SlotClaim(SLOT, SECOND))
    before = export_journal(two)

    with pytest.raises(SlotTaken):
        two.add(exported_entries(export_journal(one)))

    assert export_journal(two) == before
    one.close()
    two.close()


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 100)
    newer = sqlite3.connect(tmp_path / "newer")
    newer.execute("PRAGMA user_version = 2")
    newer.close()
    for name in ("text", "newer", "text/folder"):
        with pytest.raises(JournalError):
            Journal(tmp_path / name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A journal's file, without a log beside it."""
    path = tmp_path_factory.mktemp("whole") / "journal"
    journal = Journal(path)
    for nonce in range(20):
        _sent(journal, b"raw %d" % nonce, SlotClaim(f"{SLOT}{nonce}", FIRST), nonce=nonce)
    journal.close()
    return path.read_bytes()


def _use(path: Path) -> None:
    journal = Journal(path)
    try:
        journal.unfinished("31337", SENDER)
        journal.signed()
        journal.submission("31337", SlotClaim(f"{SLOT}3", FIRST))
        journal.finish(_sent(journal, b"new", SlotClaim(f"{SLOT}3", FIRST), nonce=99), Stage.MINED)
    finally:
        journal.close()


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=32))
def test_a_journal_with_changed_bytes_is_used_or_refused(tmp_path: Path, whole: bytes, changes: list) -> None:
    data = bytearray(whole)
    for place, value in changes:
        data[int(place * len(data))] = value
    for left in tmp_path.iterdir():
        left.unlink()
    (tmp_path / "journal").write_bytes(data)
    with suppress(JournalError):
        _use(tmp_path / "journal")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"CREATE TABLE entry", b"CREATE TABLE e\xcatry"),
        (b"nonce INTEGER", b"nonze INTEGER"),
        (SENDER.encode(), b"\xca" * 42),
        (SENDER.encode(), b"x" * 42),
        (b"sent", b"lent"),
        (b"31337", b"\xca1337"),
        (FIRST, b"\x00" * 16),
    ],
    ids=ascii,
)
def test_a_damaged_journal_is_said_to_be_damaged_with_what_to_do(
    tmp_path: Path, whole: bytes, old: bytes, new: bytes
) -> None:
    path = tmp_path / "journal"
    if len(old) == len(new):
        path.write_bytes(whole.replace(old, new))
    else:
        path.write_bytes(whole)
        database = sqlite3.connect(path)
        database.execute("UPDATE entry SET commitment = ? WHERE commitment = ?", (new, old))
        database.commit()
        database.close()
    with pytest.raises(JournalError, match=r"is damaged or no journal\. Move it away and import its last backup"):
        _use(path)


def _exported() -> dict:
    journal = Journal()
    _sent(journal, b"raw", SlotClaim(SLOT, FIRST))
    content = json.loads(export_journal(journal))
    journal.close()
    return content


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.update(format=2),
        lambda file: file.update(extra=1),
        lambda file: file["entries"][0].update(stage="intent"),
        lambda file: file["entries"][0].update(nonce=-1),
        lambda file: file["entries"][0].update(data="0x00"),
        lambda file: file["entries"][0].update(value=5),
        lambda file: file["entries"][0].update(attempts=[]),
        lambda file: file["entries"][0]["attempts"][0].update(raw="00"),
        lambda file: file["entries"][0]["claim"].update(commitment="11"),
    ],
)
def test_an_import_is_parsed_strictly(change: object) -> None:
    content = _exported()
    assert callable(change)
    change(content)
    journal = Journal()
    with pytest.raises(NotExported, match="not an exported journal"):
        journal.add(exported_entries(json.dumps(content)))
    assert journal.signed() == []
    journal.close()


@settings(deadline=None, max_examples=50)
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_imported_or_refused(text: str) -> None:
    journal = Journal()
    with pytest.raises(NotExported):
        journal.add(exported_entries(text))
    journal.close()
