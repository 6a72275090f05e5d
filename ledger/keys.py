"""Wallet files: encrypted keystores (Web3 Secret Storage, version 3), made, imported and unlocked.

No private key or password ever enters a message, a log or an exception, chained ones included.
"""

import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Final, Literal

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from ledger.base import Address
from ledger.disk import refusal
from ledger.errors import KeystoreError
from ledger.keystore import BARE_KEY, MAX_FILE_BYTES, Keystore, parse

SCRYPT_N: Final = 2**18  # geth's standard


def resolve(name_or_path: str, folder: Path) -> Path:
    """The file that `--wallet` means: a plain name stands for `<name>.json` in `folder`, anything else is a path.

    Raises:
        KeystoreError: empty, or a private key, which no message repeats.
    """
    if not name_or_path.strip():
        raise KeystoreError("no wallet is named: give a name in the wallet folder, or the path of a keystore file")
    if BARE_KEY.fullmatch(name_or_path):
        raise KeystoreError(
            "that is a private key, not the name of a wallet: `intellect-node wallet import NAME` makes a wallet of a "
            "key and asks for it. What was typed on a command line is in its history: better move to another key"
        )
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name_or_path):
        return folder / f"{name_or_path}.json"
    return Path(name_or_path).expanduser()


def node_key_path(wallet: Path) -> Path:
    """The node key's file, beside the provider's `wallet`: `alice.json` has `alice.node.json`."""
    stem = wallet.stem if wallet.suffix == ".json" else wallet.name
    return wallet.with_name(f"{stem}.node.json")


def create(path: Path, password: str, iterations: int | None = None) -> Address:
    """Makes a new key and writes it to `path`, which must not exist; returns its address.

    Args:
        iterations: of PBKDF2, in place of scrypt with geth's standard parameters.

    Raises:
        KeystoreError: `path` exists or cannot be written, or `password` is empty.
    """
    require_new(path)
    return _write(path, Account.create(), password, iterations)


def import_key(path: Path, private_key_hex: str, password: str, iterations: int | None = None) -> Address:
    """Writes the key `private_key_hex` (64 hex digits) to `path`, as `create` does.

    Raises:
        KeystoreError: as `create`, or the key is no secp256k1 private key.
    """
    require_new(path)
    account = _account(private_key_hex.strip())
    if account is None:
        raise KeystoreError("that is no private key: expected 64 hexadecimal digits, with or without 0x in front")
    return _write(path, account, password, iterations)


def require(path: Path) -> None:
    """That `path` is a wallet, before anybody is asked for its password. Raises: KeystoreError: as `unlock`."""
    _read(path)


def unlock(path: Path, password: str) -> LocalAccount:
    """The account in `path`; its address is the file's, where the file names one.

    Raises:
        KeystoreError: the file is missing, empty, too large, unreadable or no V3 keystore, asks for an absurd amount
            of work, names another address than its key's, or `password` is wrong.
    """
    keystore = _read(path)
    account = _decrypt(keystore, password)
    if account is None:
        raise KeystoreError(f"the password of wallet {path} is wrong, or the file is damaged: try again")
    if keystore.address is not None and to_checksum_address(keystore.address) != account.address:
        raise KeystoreError(f"wallet {path} names another address than its key's: restore it from a backup")
    return account


def address(path: Path) -> Address:
    """The address that the file names. Nothing vouches for it before `unlock` has compared it with the key.

    Raises:
        KeystoreError: as `unlock`, the password apart, or the file names no address.
    """
    named = _read(path).address
    if named is None:
        raise KeystoreError(f"wallet {path} does not name its address: unlock it to learn it")
    return Address(to_checksum_address(named))


def _account(private_key_hex: str) -> LocalAccount | None:
    if BARE_KEY.fullmatch(private_key_hex) is None:
        return None
    try:
        account: LocalAccount = Account.from_key(private_key_hex.removeprefix("0x"))
    except ValueError:  # zero, or not below the order
        return None
    return account


def _decrypt(keystore: Keystore, password: str) -> LocalAccount | None:
    # Returns None so that the caller raises with no context: the errors caught here may quote password or key.
    try:
        return _account(bytes(Account.decrypt(keystore.model_dump(), password)).hex())
    except ValueError:
        return None


def _read(path: Path) -> Keystore:
    return parse(_read_bytes(path), str(path))


def _read_bytes(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise KeystoreError(f"wallet {path} is not a file: name the keystore file itself")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise KeystoreError(f"wallet {path} does not exist: create or import one, or correct the name") from None
    except PermissionError:
        raise KeystoreError(f"wallet {path} may not be read by this user: correct its owner or mode") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise KeystoreError(f"wallet {path!s} cannot be read: {refusal(error)}") from error
    if len(data) > MAX_FILE_BYTES:
        raise KeystoreError(f"wallet {path} is too large for a keystore (over {MAX_FILE_BYTES} bytes): name another")
    return data


def require_new(path: Path) -> None:
    """Raises: KeystoreError: something is at `path`, where a wallet is to be made."""
    if os.path.lexists(path):
        raise KeystoreError(f"wallet {path} exists and is never overwritten: choose another name")


def _write(path: Path, account: LocalAccount, password: str, iterations: int | None) -> Address:
    if not password:
        raise KeystoreError("an empty password protects nothing: choose one")
    try:
        password.encode()
    except UnicodeEncodeError:
        unusable = True
    else:
        unusable = False
    if unusable:
        raise KeystoreError("the password is not valid UTF-8 text: choose another")
    kdf: Literal["scrypt", "pbkdf2"] = "scrypt" if iterations is None else "pbkdf2"
    keystore = Account.encrypt(account.key, password, kdf, iterations or SCRYPT_N)
    _make_folder(path)
    _write_new(path, json.dumps(keystore).encode())
    return Address(account.address)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise KeystoreError(f"folder {path.parent} of the wallet cannot be made: {refusal(error)}") from error


def _write_new(path: Path, data: bytes) -> None:
    """Writes `path` whole or not at all, readable by this user alone, and never over another file."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".wallet-")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(name, path)  # unlike a rename, fails where `path` exists
        finally:
            Path(name).unlink()
        _sync_folder(path.parent)
    except FileExistsError:
        raise KeystoreError(f"wallet {path} exists and is never overwritten: choose another name") from None
    except OSError as error:
        raise KeystoreError(f"wallet {path} cannot be written: {refusal(error)}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
