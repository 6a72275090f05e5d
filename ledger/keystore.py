"""The file format of an encrypted keystore (Web3 Secret Storage, version 3), parsed with limits before any work."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from ledger.errors import KeystoreError
from ledger.parsing import first_problem

BARE_KEY: Final = re.compile(r"(0x)?[0-9a-fA-F]{64}")
MAX_FILE_BYTES: Final = 64 * 1024
MAX_PBKDF2_ITERATIONS: Final = 10_000_000  # ten times what eth-account writes: some ten seconds
MAX_SCRYPT_BYTES: Final = 512 * 2**20  # twice what geth's standard parameters (n 2^18, r 8) take
MAX_SCRYPT_WORK: Final = 2**23  # n r p; four times geth's standard


def _hex(digits: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^(0x)?[0-9a-fA-F]{digits}$")


class _Part(BaseModel):
    """Unknown fields are left alone: other wallets write names and hints of their own."""

    model_config = ConfigDict(frozen=True, strict=True)


class _Pbkdf2(_Part):
    c: Annotated[int, Field(ge=1, le=MAX_PBKDF2_ITERATIONS)]
    dklen: Literal[32]
    prf: Literal["hmac-sha256"]
    salt: Annotated[str, _hex("{2,128}")]


class _Scrypt(_Part):
    n: Annotated[int, Field(ge=2, le=MAX_SCRYPT_WORK)]
    r: Annotated[int, Field(ge=1, le=1024)]
    p: Annotated[int, Field(ge=1, le=1024)]
    dklen: Literal[32]
    salt: Annotated[str, _hex("{2,128}")]

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.n & (self.n - 1):
            raise ValueError("n must be a power of two")
        if 128 * self.n * self.r > MAX_SCRYPT_BYTES:  # RFC 7914, section 5: scrypt's memory
            raise ValueError(f"scrypt would take over {MAX_SCRYPT_BYTES} bytes of memory")
        if self.n * self.r * self.p > MAX_SCRYPT_WORK:
            raise ValueError(f"n r p is over {MAX_SCRYPT_WORK}")
        return self


class _CipherParams(_Part):
    iv: Annotated[str, _hex("{32}")]


class _Crypto(_Part):
    cipher: Literal["aes-128-ctr"]
    cipherparams: _CipherParams
    ciphertext: Annotated[str, _hex("{64}")]
    mac: Annotated[str, _hex("{64}")]


class _Pbkdf2Crypto(_Crypto):
    kdf: Literal["pbkdf2"]
    kdfparams: _Pbkdf2


class _ScryptCrypto(_Crypto):
    kdf: Literal["scrypt"]
    kdfparams: _Scrypt


class Keystore(_Part):
    """A keystore whose parameters are within bounds; nothing of it is authenticated yet."""

    version: Literal[3]
    address: Annotated[str, _hex("{40}")] | None = None
    crypto: Annotated[
        _Pbkdf2Crypto | _ScryptCrypto,
        Field(discriminator="kdf", validation_alias=AliasChoices("crypto", "Crypto")),
    ]


def parse(data: bytes, name: str) -> Keystore:
    """The keystore in `data`; `name` is for messages.

    Raises:
        KeystoreError: not JSON, another kind of JSON, or a key derivation that would take absurd work.
    """
    if not data.strip():
        raise KeystoreError(f"wallet {name} is empty: restore it from a backup or make another one")
    try:
        return Keystore.model_validate_json(data)
    except ValidationError as error:
        problem, first = first_problem(error, "file"), error.errors(include_input=False)[0]
    if BARE_KEY.fullmatch(data.strip().decode("ascii", "replace")):
        raise KeystoreError(
            f"wallet {name} holds a bare private key, readable by whoever reads the file: make an encrypted wallet of "
            f"it with `intellect-node wallet import NAME --key-file {name}`, then delete it"
        )
    if first["type"] == "json_invalid":
        raise KeystoreError(f"wallet {name} is not JSON: expected an encrypted keystore file, version 3")
    if "kdfparams" in first["loc"]:
        raise KeystoreError(
            f"wallet {name} asks for a key derivation outside the bounds ({problem}): not running it; "
            "write the keystore anew with the wallet that made it, with standard parameters"
        )
    raise KeystoreError(f"wallet {name} is JSON but no encrypted keystore of version 3 ({problem}): name another file")
