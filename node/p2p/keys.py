"""This node's libp2p key: an Ed25519 secret in its state folder, and signatures by it."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node.errors import StoreError
from node.files import disk_refused, sync

SECRET_BYTES: Final = 32
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64  # RFC 8032


def load_secret(path: Path) -> bytes:
    """The secret in `path`, made where there is none; nobody but its owner may read it.

    Raises: StoreError: the disk refused, or what is there is no secret of this program.
    """
    try:
        if not path.exists():
            _write(path, secrets.token_bytes(SECRET_BYTES))
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES + 1)
    except OSError as error:
        raise disk_refused(path, error) from error
    if len(secret) != SECRET_BYTES:
        raise StoreError(f"{path} is not the libp2p key that this program writes: delete it, and another one is made")
    return secret


def _write(path: Path, secret: bytes) -> None:
    """Whole or not at all, never over another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    sync(path.parent)


def public_key_of(secret: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def sign(secret: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def is_signed(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` of `message` is by the holder of `public_key`."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
