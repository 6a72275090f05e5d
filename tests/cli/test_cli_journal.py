"""Journals on the command line: what one machine signed is known to another, and nothing is signed against it."""

import json
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from ledger.base import Address, Digest
from ledger.deployment import Deployment
from ledger.journal import Attempt, Journal, SlotClaim
from ledger.keys import create
from node.config import Home
from node.files import locked
from tests.cli.command import PASSWORD, Answer, command

CONTRACT = Address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")  # EIP-55's first example
SLOT = "coordinator/1/node/0/0"
FIRST, SECOND = (Digest(bytes([value]) * 32) for value in (1, 2))


def run(*words: str, home: Path) -> Answer:
    return command(*words, home=home, INTELLECT_NODE_RPC="http://127.0.0.1:1")


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    """A deployment's file on a chain that is not there: no journal needs it."""
    file = tmp_path / "deployment.json"
    Deployment(31337, CONTRACT, CONTRACT, CONTRACT, 0, 0).save(file)
    return file


def new_wallet(home: Path) -> Address:
    return create(home / "wallets" / "mine.json", PASSWORD, iterations=1)


def journal_path(home: Path, who: Address) -> Path:
    path = home / "journals" / f"31337-5aaeb605-{who.lower()}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def signed(path: Path, who: Address, raw: bytes, commitment: Digest) -> None:
    journal = Journal(path)
    number = journal.intend("31337", who, "submit", CONTRACT, b"data", 0, SlotClaim(SLOT, commitment))
    journal.sign(number, 0, 21_000, Attempt(Digest(keccak(raw)), raw, 5, 1))
    journal.close()


def words(contracts: Path, *more: str) -> tuple[str, ...]:
    return (*more, "--wallet", "mine", "--deployment", str(contracts), "--json")


def test_what_was_exported_is_known_where_it_is_imported(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    who = new_wallet(home)
    path = journal_path(home, who)
    signed(path, who, b"raw", FIRST)

    exported = run(*words(contracts, "journal", "export", str(file)), home=home)
    path.unlink()
    imported = run(*words(contracts, "journal", "import", str(file)), home=home)
    again = run(*words(contracts, "journal", "import", str(file)), home=home)

    assert (exported.code, imported.code, again.code) == (0, 0, 0)
    assert json.loads(exported.out) == {"journal": str(path), "file": str(file), "transactions": 1}
    assert json.loads(imported.out)["new"] == 1
    assert json.loads(again.out)["new"] == 0
    journal = Journal(path)
    (entry,) = journal.signed()
    journal.close()
    assert (entry.sender, entry.claim, entry.attempts[0].raw) == (who, SlotClaim(SLOT, FIRST), b"raw")


def test_a_journal_against_this_one_is_not_imported(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    who = new_wallet(home)
    path = journal_path(home, who)
    signed(path, who, b"raw", FIRST)
    run(*words(contracts, "journal", "export", str(file)), home=home)
    path.unlink()
    signed(path, who, b"other", SECOND)

    answer = run(*words(contracts, "journal", "import", str(file)), home=home)

    assert answer.code == 1
    assert answer.err.startswith(f"error: slot {SLOT}") and "Traceback" not in answer.err


def test_nothing_is_imported_while_a_node_of_the_wallet_runs(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    who = new_wallet(home)
    node = create(home / "wallets" / "mine.node.json", PASSWORD, iterations=1)
    signed(journal_path(home, who), who, b"raw", FIRST)
    run(*words(contracts, "journal", "export", str(file)), home=home)
    import_ = words(contracts, "journal", "import", str(file))

    for runs in (who, node):  # a worker's process signs with both keys, and holds the node's folder
        for key in ((), ("--node",)):
            with locked(Home(home).state(31337, CONTRACT, 7, runs).lock):
                answer = run(*import_, *key, home=home)
            assert answer.code == 2
            assert "already runs this key" in answer.said and answer.said.endswith("stop it first")
    assert not journal_path(home, node).exists()
    with locked(Home(home).state(31337, CONTRACT, 7, Address("0x" + "ab" * 20)).lock):  # another wallet's
        assert run(*import_, home=home).code == 0


def test_the_journal_of_the_other_key_is_refused_with_the_option_to_give(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    who = new_wallet(home)
    node = create(home / "wallets" / "mine.node.json", PASSWORD, iterations=1)
    path = journal_path(home, node)
    signed(path, node, b"raw", FIRST)
    exported = run(*words(contracts, "journal", "export", str(file), "--node"), home=home)
    path.unlink()

    refused = run(*words(contracts, "journal", "import", str(file)), home=home)
    taken = run(*words(contracts, "journal", "import", str(file), "--node"), home=home)

    assert (exported.code, refused.code, taken.code) == (0, 2, 0)
    assert refused.said == f"error: this is the journal of {node}, not of {who}: give --node if it is the node key's"
    assert not journal_path(home, who).exists()
    assert json.loads(taken.out)["new"] == 1


def test_an_export_replaces_a_file_only_when_told_to(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    who = new_wallet(home)
    signed(journal_path(home, who), who, b"raw", FIRST)
    file.write_text("mine")
    export = words(contracts, "journal", "export", str(file))

    refused = run(*export, home=home)
    kept = file.read_text()
    forced = run(*export, "--force", home=home)

    assert (refused.code, kept) == (2, "mine")
    assert refused.said == f"error: {file} exists: name another file, or replace it with --force"
    assert forced.code == 0 and "entries" in json.loads(file.read_text())


def test_what_is_not_there_or_no_journal_is_said(tmp_path: Path, contracts: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "backup.json"
    new_wallet(home)
    file.write_text("[]")

    new = str(tmp_path / "new.json")
    unsigned = run(*words(contracts, "journal", "export", new), home=home)
    without_node_key = run(*words(contracts, "journal", "export", new, "--node"), home=home)
    missing = run(*words(contracts, "journal", "import", str(tmp_path / "none")), home=home)
    other = run(*words(contracts, "journal", "import", str(file)), home=home)

    assert [answer.code for answer in (unsigned, without_node_key, missing, other)] == [2, 2, 2, 2]
    assert "signed nothing" in unsigned.err
    assert "mine.node.json" in without_node_key.err
    assert "cannot be read" in missing.err
    assert other.said == "error: not an exported journal: another file, or one that was changed or cut short"


def test_a_damaged_journal_ends_the_command_with_what_to_do(tmp_path: Path, contracts: Path) -> None:
    home = tmp_path / "home"
    who = new_wallet(home)
    path = journal_path(home, who)
    signed(path, who, b"raw", FIRST)
    path.write_bytes(path.read_bytes().replace(who.encode(), b"\xca" * len(who)))

    answer = run(*words(contracts, "journal", "export", str(tmp_path / "backup.json")), home=home)

    assert answer.code == 1
    assert answer.said.startswith(f"error: journal {path}: ")
    assert "is damaged or no journal. Move it away and import its last backup" in answer.said
