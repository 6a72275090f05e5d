"""Wallets and passwords that cannot be used: said by name, with what to do, and never repeated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.keys import create, import_key
from tests.cli.command import PASSWORD, command

REPOSITORY = Path(__file__).parents[2]
KEY = "11" * 32
V1 = {"version": "1", "id": "x", "address": "00" * 20, "crypto": {"cipher": "aes-128-cbc", "ciphertext": "00" * 48}}


@pytest.fixture
def wallet(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    create(path, PASSWORD, iterations=1)
    return path


FILES = {
    "empty": (b"", "is empty: restore it from a backup"),
    "other": (b'{"a": 1}', "is JSON but no encrypted keystore of version 3"),
    "first-version": (json.dumps(V1).encode(), "no encrypted keystore of version 3 (version: Input should be 3"),
    "presale": (b'{"encseed": "00", "ethaddr": "00", "bkp": "00"}', "no encrypted keystore of version 3"),
    "text": (b"my wallet", "is not JSON: expected an encrypted keystore file"),
    "raw": (KEY.encode(), "holds a bare private key"),
    "raw-0x": (f"0x{KEY}\n".encode(), "`intellect-node wallet import NAME --key-file"),
    "bytes": (b"\xff\xfe\x00", "is not JSON"),
    "large": (b" " * 70_000, "is too large for a keystore"),
    "deep": (b"[" * 60_000, "is not JSON"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wallet_of_another_kind_is_said(tmp_path: Path, name: str) -> None:
    content, what = FILES[name]
    (tmp_path / name).write_bytes(content)

    for words in (("wallet", "show", tmp_path / name), ("faucet", "--wallet", tmp_path / name, "--rpc", "http://h")):
        answer = command(*words, home=tmp_path)
        assert (answer.code, answer.out) == (2, "")
        assert answer.said.startswith(f"error: wallet {tmp_path / name} ") and what in answer.said


def test_a_wallet_that_is_missing_or_a_folder_is_said(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none", "does not exist"), (tmp_path, "is not a file")):
        answer = command("status", "--run", "1", "--wallet", path, home=tmp_path)
        assert answer.code == 2
        assert answer.said.startswith(f"error: wallet {path} {what}: ")


SOMEBODY = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # EIP-55's first example
ROLE = ("--run", "1", "--host", "127.0.0.1")
SENDING = [
    ("join", *ROLE), ("validate", *ROLE), ("train", "--model", "tiny", *ROLE), ("relay", *ROLE), ("faucet",),
    ("deploy", "--out", "OUT"), ("run", "create", "--trainer", SOMEBODY, "--validator", SOMEBODY),
    ("run", "approve", SOMEBODY, "--run", "1"), ("run", "end", "--run", "1"), ("run", "withdraw", "--run", "1"),
    ("stake", "add", "1"), ("stake", "unbond"), ("stake", "withdraw"), ("rewards", "claim"),
]  # fmt: skip


@pytest.mark.parametrize("words", SENDING, ids=[" ".join(words[:2]) for words in SENDING])
def test_a_wallet_is_looked_for_before_its_password(tmp_path: Path, words: tuple[str, ...]) -> None:
    named = [str(tmp_path / "contracts.json") if word == "OUT" else word for word in words]

    answer = command(
        *named, "--wallet", "nobody", "--rpc", "http://h", home=tmp_path / "home", INTELLECT_NODE_PASSWORD=""
    )

    assert answer.code == 2
    assert answer.said == (
        f"error: wallet {tmp_path / 'home' / 'wallets' / 'nobody.json'} does not exist: create or import one, or "
        "correct the name"
    )
    assert list(tmp_path.iterdir()) == []


AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0:  # whom no mode keeps out, until the program is run without CAP_DAC_OVERRIDE and _READ_SEARCH
    for capability in (1, 2):
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-m", "cli", *sys.argv[1:]])
"""


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("wallet", "show", "mine.json"), "wallet mine.json may not be read by this user: correct its owner or mode"),
        (("faucet", "--wallet", "other.json", "--password-file", "word"), "path 'word' is not readable"),
        (("wallet", "import", "new", "--key-file", "word"), "path 'word' is not readable"),
    ],
    ids=["wallet", "password", "key"],
)
def test_a_file_that_may_not_be_read_is_said(wallet: Path, words: tuple[str, ...], said: str) -> None:
    folder = wallet.parent
    create(folder / "other.json", PASSWORD, iterations=1)
    (folder / "word").write_text(PASSWORD)
    for path in (wallet, folder / "word"):
        path.chmod(0)
    told = {"INTELLECT_NODE_HOME": str(folder), "INTELLECT_NODE_PASSWORD": PASSWORD, "PYTHONPATH": str(REPOSITORY)}

    answer = subprocess.run(
        [sys.executable, "-c", AS_ANYBODY, *words], cwd=folder, env={**os.environ, **told}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr and "Traceback" not in answer.stderr and PASSWORD not in answer.stderr


@pytest.mark.parametrize("text", [KEY, f"0x{KEY}", KEY.upper()])
def test_a_private_key_in_a_wallets_place_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    for words in (("wallet", "show", text), ("wallet", "new", text), ("status", "--run", "1", "--wallet", text)):
        answer = command(*words, home=tmp_path)
        assert answer.code == 2
        assert answer.said.startswith("error: that is a private key, not the name of a wallet: ")
    assert not list(tmp_path.rglob("*.json"))


def test_a_wrong_password_is_said_by_the_wallets_name(wallet: Path, tmp_path: Path) -> None:
    answer = command("faucet", "--wallet", wallet, home=tmp_path, INTELLECT_NODE_PASSWORD="correct hors")

    assert answer.code == 2
    assert answer.said == f"error: the password of wallet {wallet} is wrong, or the file is damaged: try again"


def test_a_password_file_that_cannot_be_used_is_said(wallet: Path, tmp_path: Path) -> None:
    contents = {"empty": b"", "newline": b"\n", "bytes": b"\xff\xfe", "large": b"x" * 70_000}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    expected = {
        "empty": "is empty: write the password", "newline": "is empty", "bytes": "is not UTF-8 text: name another file",
        "large": "is over 65536 bytes", "none": "cannot be read: No such file", ".": "cannot be read: Is a directory",
    }  # fmt: skip

    for name, what in expected.items():
        file = tmp_path / name
        for words in (("faucet", "--wallet", wallet), ("wallet", "new", tmp_path / "new.json")):
            answer = command(*words, "--password-file", file, home=tmp_path)
            assert answer.code == 2
            assert answer.said.startswith(f"error: password file {file} ") and what in answer.said
    assert not (tmp_path / "new.json").exists()


def test_a_password_files_line_end_is_not_part_of_the_password(tmp_path: Path) -> None:
    (tmp_path / "windows").write_bytes(PASSWORD.encode() + b"\r\n")
    import_key(tmp_path / "mine.json", KEY, PASSWORD, iterations=1)

    answer = command(
        "faucet", "--wallet", tmp_path / "mine.json", "--password-file", tmp_path / "windows", "--rpc", "nothing",
        home=tmp_path, INTELLECT_NODE_PASSWORD="another",
    )  # fmt: skip

    assert "an RPC endpoint is an http(s) URL" in answer.said  # it got past the wallet


def test_an_empty_password_variable_is_said(wallet: Path, tmp_path: Path) -> None:
    answer = command("faucet", "--wallet", wallet, home=tmp_path, INTELLECT_NODE_PASSWORD="")

    assert answer.code == 2
    assert answer.said.startswith("error: INTELLECT_NODE_PASSWORD is empty: ")


def test_a_key_file_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "bytes": b"\xff" * 64, "large": b"1" * 2000, "short": b"11" * 31}.items():
        (tmp_path / name).write_bytes(content)
    expected = {
        "empty": "that is no private key", "bytes": "is not UTF-8 text", "large": "is over 1024 bytes",
        "short": "that is no private key", "none": "cannot be read: No such file",
        ".": "cannot be read: Is a directory",
    }  # fmt: skip

    for name, what in expected.items():
        answer = command("wallet", "import", "mine", "--key-file", tmp_path / name, home=tmp_path)
        assert answer.code == 2
        assert what in answer.said
    assert command("wallet", "import", "mine", home=tmp_path).said.endswith("Give --key-file")
    assert not (tmp_path / "wallets").exists()


def test_a_name_that_is_taken_is_refused_before_any_secret_is_asked_for(wallet: Path, tmp_path: Path) -> None:
    """Here nobody can be asked: whoever asked first would say so."""
    for words in (("wallet", "import", wallet), ("wallet", "new", wallet, "--password-file", tmp_path / "none")):
        answer = command(*words, home=tmp_path)
        assert answer.code == 2
        assert answer.said == f"error: wallet {wallet} exists and is never overwritten: choose another name"
