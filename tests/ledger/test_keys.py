"""Wallet files: the format's published vectors, every way in which a file can be unusable, and that no key leaks."""

import copy
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import keys
from ledger.errors import KeystoreError
from ledger.keystore import parse

# Test vectors of the Web3 Secret Storage definition, https://ethereum.org/developers/docs/data-structures-and-encoding
SECRET = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d"
SECRET_ADDRESS = "0x008AeEda4D805471dF9b2A5B0f38A0C3bCBA786b"
PBKDF2: dict[str, Any] = {
    "crypto": {
        "cipher": "aes-128-ctr",
        "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
        "ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46",
        "kdf": "pbkdf2",
        "kdfparams": {
            "c": 262144,
            "dklen": 32,
            "prf": "hmac-sha256",
            "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd",
        },
        "mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2",
    },
    "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
    "version": 3,
}
SCRYPT: dict[str, Any] = {
    "crypto": {
        "cipher": "aes-128-ctr",
        "cipherparams": {"iv": "83dbcc02d8ccb40e466191a123791e0e"},
        "ciphertext": "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c",
        "kdf": "scrypt",
        "kdfparams": {
            "dklen": 32,
            "n": 262144,
            "r": 1,
            "p": 8,
            "salt": "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19",
        },
        "mac": "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097",
    },
    "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
    "version": 3,
}
PASSWORD = "correct horse"


@pytest.fixture
def wallet(tmp_path: Path) -> Path:
    path = tmp_path / "alice.json"
    keys.import_key(path, SECRET, PASSWORD, iterations=2)
    return path


def _changed(path: Path, change: dict[str, Any], *where: str) -> None:
    data = json.loads(path.read_text())
    target = data
    for name in where:
        target = target[name]
    target.update(change)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize("vector", [PBKDF2, SCRYPT], ids=["pbkdf2", "scrypt"])
def test_the_published_vector_unlocks(vector: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(vector))

    account = keys.unlock(path, "testpassword")

    assert (account.key.hex(), account.address) == (SECRET, SECRET_ADDRESS)


def test_a_file_without_an_address_says_to_unlock_it(tmp_path: Path) -> None:
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(PBKDF2))

    with pytest.raises(KeystoreError, match="unlock it to learn it"):
        keys.address(path)


def test_the_capital_crypto_of_old_wallets_is_read(wallet: Path) -> None:
    data = json.loads(wallet.read_text())
    data["Crypto"] = data.pop("crypto")
    wallet.write_text(json.dumps(data))

    assert keys.unlock(wallet, PASSWORD).address == SECRET_ADDRESS


def test_a_created_wallet_unlocks_to_its_address_and_two_differ(tmp_path: Path) -> None:
    first = keys.create(tmp_path / "a.json", PASSWORD, iterations=2)
    second = keys.create(tmp_path / "b.json", PASSWORD, iterations=2)

    assert keys.unlock(tmp_path / "a.json", PASSWORD).address == first == keys.address(tmp_path / "a.json")
    assert first != second


def test_scrypt_with_standard_parameters_is_the_default(tmp_path: Path) -> None:
    keys.create(tmp_path / "a.json", PASSWORD)

    crypto = json.loads((tmp_path / "a.json").read_text())["crypto"]

    assert crypto["kdf"] == "scrypt"
    assert {name: crypto["kdfparams"][name] for name in ("n", "r", "p")} == {"n": 2**18, "r": 8, "p": 1}


def test_a_wallet_is_readable_by_its_user_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "alice.json"

    keys.create(path, PASSWORD, iterations=2)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("make", [keys.create, lambda path, word: keys.import_key(path, SECRET, word)])
def test_a_wallet_is_never_overwritten(make: Any, wallet: Path) -> None:
    before = wallet.read_bytes()

    with pytest.raises(KeystoreError, match="never overwritten"):
        make(wallet, PASSWORD)

    assert wallet.read_bytes() == before


def test_a_dangling_link_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "alice.json").symlink_to(tmp_path / "elsewhere.json")

    with pytest.raises(KeystoreError, match="never overwritten"):
        keys.create(tmp_path / "alice.json", PASSWORD, iterations=2)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(KeystoreError, match="cannot be made"):
        keys.create(tmp_path / "file" / "alice.json", PASSWORD, iterations=2)


@pytest.mark.parametrize("key", ["", "0x", "12" * 31, "12" * 33, "zz" * 32, "00" * 32, "ff" * 32])
def test_what_is_no_private_key_is_not_imported(key: str, tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="64 hexadecimal digits"):
        keys.import_key(tmp_path / "a.json", key, PASSWORD)

    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(("password", "said"), [("", "empty password"), ("\udcff", "not valid UTF-8")])
def test_an_unusable_password_is_refused(password: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match=said):
        keys.create(tmp_path / "a.json", password, iterations=2)


@pytest.mark.parametrize("password", ["", "wrong", "\udcff"])
def test_a_wrong_password_is_said(password: str, wallet: Path) -> None:
    with pytest.raises(KeystoreError, match=r"password of wallet .* is wrong"):
        keys.unlock(wallet, password)


def test_an_address_that_is_not_the_keys_is_found_on_unlocking(wallet: Path) -> None:
    _changed(wallet, {"address": "11" * 20})

    assert keys.address(wallet) == "0x" + "11" * 20
    with pytest.raises(KeystoreError, match="another address"):
        keys.unlock(wallet, PASSWORD)


# --- Files that are no wallet


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="does not exist: create or import one"):
        keys.unlock(tmp_path / "nobody.json", PASSWORD)


def test_a_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="is not a file"):
        keys.unlock(tmp_path, PASSWORD)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(KeystoreError, match="is not a file"):
        keys.unlock(tmp_path / "pipe", PASSWORD)


def test_a_file_of_somebody_else_is_said(wallet: Path) -> None:
    wallet.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # whom no mode keeps out
            os.seteuid(65534)
        with pytest.raises(KeystoreError, match="may not be read by this user"):
            keys.unlock(wallet, PASSWORD)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"not json", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 60_000, "is not JSON"),
        (b"[]", "no encrypted keystore of version 3"),
        (b"{}", "no encrypted keystore of version 3"),
        (b'{"version": 4, "crypto": {}}', "no encrypted keystore of version 3"),
        (b'"' + b"a" * 65_536, "too large"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_file_of_another_kind_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)

    with pytest.raises(KeystoreError, match=said):
        keys.unlock(path, PASSWORD)
    with pytest.raises(KeystoreError, match=said):
        keys.address(path)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"ciphertext": "00" * 31}, ("crypto",)),
        ({"mac": 5}, ("crypto",)),
        ({"cipher": "aes-256-gcm"}, ("crypto",)),
        ({"iv": "zz" * 16}, ("crypto", "cipherparams")),
        ({"kdf": "argon2"}, ("crypto",)),
        ({"version": "3"}, ()),
        ({"address": "12"}, ()),
    ],
)
def test_an_ill_formed_field_is_named(change: dict[str, Any], where: tuple[str, ...], wallet: Path) -> None:
    _changed(wallet, change, *where)

    with pytest.raises(KeystoreError, match="no encrypted keystore of version 3"):
        keys.unlock(wallet, PASSWORD)


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("vector", "change"),
    [
        (PBKDF2, {"c": 10_000_001}),
        (PBKDF2, {"c": 0}),
        (PBKDF2, {"c": True}),
        (PBKDF2, {"dklen": 2**31}),
        (PBKDF2, {"salt": ""}),
        (PBKDF2, {"salt": "00" * 1000}),
        (SCRYPT, {"n": 2**40}),
        (SCRYPT, {"n": 2**20, "r": 8, "p": 1}),
        (SCRYPT, {"n": 2**18, "r": 8, "p": 8}),
        (SCRYPT, {"n": 1000}),
        (SCRYPT, {"n": 1}),
        (SCRYPT, {"r": 2**20}),
        (SCRYPT, {"p": 2**30}),
        (SCRYPT, {"n": "262144"}),
    ],
    ids=str,
)
def test_an_absurd_key_derivation_is_not_run(vector: dict[str, Any], change: dict[str, Any], tmp_path: Path) -> None:
    hostile = copy.deepcopy(vector)
    hostile["crypto"]["kdfparams"] |= change
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(hostile))

    with pytest.raises(KeystoreError, match="not running it"):
        keys.unlock(path, "testpassword")


@given(st.dictionaries(st.sampled_from(["version", "address", "crypto", "kdf"]), st.integers() | st.text() | st.none()))
@settings(max_examples=50, deadline=None)
def test_any_other_json_is_refused_in_one_way(data: dict[str, Any]) -> None:
    with pytest.raises(KeystoreError):
        parse(json.dumps(data).encode(), "a.json")


# --- Names


def test_a_plain_name_is_a_file_in_the_wallet_folder_and_anything_else_a_path(tmp_path: Path) -> None:
    assert keys.resolve("alice", tmp_path) == tmp_path / "alice.json"
    assert keys.resolve("./alice", tmp_path) == Path("alice")
    assert keys.resolve("keys/alice.json", tmp_path) == Path("keys/alice.json")
    assert keys.resolve("~/alice.json", tmp_path) == Path.home() / "alice.json"
    assert keys.resolve("alice.json", tmp_path) == Path("alice.json")


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="no wallet is named"):
        keys.resolve(name, tmp_path)


def test_the_node_key_lies_beside_the_wallet() -> None:
    assert keys.node_key_path(Path("w/alice.json")) == Path("w/alice.node.json")
    geth = "UTC--2026-01-02T03-04-05.678Z--008aeeda"
    assert keys.node_key_path(Path(geth)) == Path(f"{geth}.node.json")


# --- Leaks


def _everything(error: BaseException | None) -> str:
    seen = ""
    while error is not None:
        seen += str(error) + repr(error.args)
        error = error.__cause__ or error.__context__
    return seen


def test_no_exception_names_a_key_or_password(tmp_path: Path, wallet: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[KeystoreError] = []
    for call in (
        lambda: keys.unlock(wallet, "hunter2\udcff"),
        lambda: keys.unlock(wallet, "hunter2"),
        lambda: keys.import_key(wallet, SECRET, "hunter2"),
        lambda: keys.import_key(tmp_path / "new.json", SECRET + "0", "hunter2"),
        lambda: keys.import_key(tmp_path / "new.json", SECRET, "hunter2\udcff"),
        lambda: keys.import_key(tmp_path / "alice.json" / "new.json", SECRET, "hunter2", iterations=2),
    ):
        with pytest.raises(KeystoreError) as raised:
            call()
        errors.append(raised.value)

    said = "".join(_everything(error) for error in errors) + caplog.text
    assert SECRET not in said
    assert "hunter2" not in said
    assert errors[0].__context__ is None


def test_an_unlocked_account_does_not_show_its_key(wallet: Path) -> None:
    account = keys.unlock(wallet, PASSWORD)

    assert account.address == Account.from_key(SECRET).address == SECRET_ADDRESS
    assert SECRET not in repr(account) + str(account)
