"""What nodes sign: the protocol's EIP-712 messages, and the JSON in which signed ones travel between nodes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data
from eth_account.signers.base import BaseAccount
from eth_keys.exceptions import BadSignature
from eth_utils.crypto import keccak
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ledger.base import WHOLE_FILE, Address, Digest, Fault, RunId
from ledger.errors import InvalidSignature, MalformedMessage
from ledger.parsing import first_problem

NAME: Final = "intellect-node"  # protocol, "Signed messages"
VERSION: Final = "1"
SIGNATURE_BYTES: Final = 65  # r || s || v
HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0  # secp256k1 n / 2; EIP-2, low s

MAX_LEAVES: Final = 2**16  # of one NoFault on the wire: an audit draws far fewer
MAX_CHECK: Final = 10  # protocol, "Check codes and what they cost"
MAX_JSON_INTEGER: Final = 2**53 - 1  # RFC 8259, section 6: what every reader of JSON gets exactly


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a signature counts. `contract` is the run coordinator, for `NodeAuthorization` and `PeerIdentity` the
    staking contract."""

    chain_id: int
    contract: Address


@dataclass(frozen=True, slots=True)
class Have:
    """The signer held the whole file of `commitment`, in order, at `time` (block time, seconds)."""

    commitment: Digest
    time: int


@dataclass(frozen=True, slots=True)
class NoFault:
    """The signer checked exactly `leaves` (ascending) and found nothing; `values` is empty or has one per leaf."""

    commitment: Digest
    leaves: tuple[int, ...]
    values: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """The signer accepts every one of `commitments`, in the order in which `settle` gets them."""

    run: RunId
    commitments: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Clear:
    """The signer checked a reported leaf and found it clean."""

    run: RunId
    commitment: Digest
    leaf: int


@dataclass(frozen=True, slots=True)
class NodeAuthorization:
    """A node key agrees to work for `provider`; `nonce` is the staking contract's `nonces(node)`."""

    provider: Address
    node: Address
    nonce: int
    deadline: int


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """A node key owns the peer-to-peer identity `peer_id`."""

    node: Address
    peer_id: bytes
    deadline: int


Message = Have | NoFault | Batch | Fault | Clear | NodeAuthorization | PeerIdentity

# Type strings of the protocol, "Signed messages": the field names are part of every hash.
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    Have: ("bytes32 commitment", "uint40 time"),
    NoFault: ("bytes32 commitment", "uint32[] leaves", "bytes32[] values"),
    Batch: ("uint256 run", "bytes32 commitmentsHash"),
    Fault: ("uint256 run", "bytes32 commitment", "uint32 leaf", "uint8 check", "bytes32 evidence"),
    Clear: ("uint256 run", "bytes32 commitment", "uint32 leaf"),
    NodeAuthorization: ("address provider", "address node", "uint256 nonce", "uint256 deadline"),
    PeerIdentity: ("address node", "bytes peerId", "uint256 deadline"),
}


def _data(message: Message) -> dict[str, object]:
    match message:
        case Have(commitment, time):
            return {"commitment": commitment, "time": time}
        case NoFault(commitment, leaves, values):
            return {"commitment": commitment, "leaves": list(leaves), "values": list(values)}
        case Batch(run, commitments):
            return {"run": run, "commitmentsHash": keccak(b"".join(commitments))}
        case Fault(run, commitment, leaf, check, evidence):
            return {"run": run, "commitment": commitment, "leaf": leaf, "check": check, "evidence": evidence}
        case Clear(run, commitment, leaf):
            return {"run": run, "commitment": commitment, "leaf": leaf}
        case NodeAuthorization(provider, node, nonce, deadline):
            return {"provider": provider, "node": node, "nonce": nonce, "deadline": deadline}
        case PeerIdentity(node, peer_id, deadline):
            return {"node": node, "peerId": peer_id, "deadline": deadline}


def _signable(domain: Domain, message: Message) -> SignableMessage:
    kind = type(message)
    typed = [{"type": type_, "name": name} for type_, name in (field.split(" ") for field in _FIELDS[kind])]
    return encode_typed_data(
        {"name": NAME, "version": VERSION, "chainId": domain.chain_id, "verifyingContract": domain.contract},
        {kind.__name__: typed},
        _data(message),
    )


def sign(account: BaseAccount, domain: Domain, message: Message) -> bytes:
    """`account`'s signature over `message`: r || s || v, 65 bytes, low s, v 27 or 28."""
    return bytes(account.sign_message(_signable(domain, message)).signature)


def recover(domain: Domain, message: Message, signature: bytes) -> Address:
    """Who signed `message`.

    Some address comes out of nearly every well-formed signature: compare it with who should have signed.

    Raises:
        InvalidSignature: not 65 bytes, v not 27 or 28, s above half the order (two signatures would then stand for
            one), or no key can have made it.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise InvalidSignature(f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
    if signature[64] not in (27, 28):
        raise InvalidSignature(f"v of a signature is 27 or 28, not {signature[64]}")
    if int.from_bytes(signature[32:64]) > HALF_ORDER:
        raise InvalidSignature("s of the signature is in the upper half of the order")
    try:
        return Address(Account.recover_message(_signable(domain, message), signature=signature))
    except BadSignature as error:
        raise InvalidSignature(f"no key can have made this signature: {error}") from error


# --- On the wire

Kind = Literal["Have", "NoFault", "Fault", "Clear"]
Statement = Have | NoFault | Fault | Clear


def _hex(size: int) -> Callable[[object], bytes]:
    pattern = re.compile(rf"0x[0-9a-f]{{{2 * size}}}")

    def read(value: object) -> bytes:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise ValueError(f"expected 0x and {2 * size} lower-case hexadecimal digits")
        return bytes.fromhex(value[2:])

    return read


_Bytes32 = Annotated[bytes, BeforeValidator(_hex(32))]
_Run = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
_Leaf = Annotated[int, Field(ge=0, le=WHOLE_FILE)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Have(_Wire):
    commitment: _Bytes32
    time: Annotated[int, Field(ge=0, lt=2**40)]


class _NoFault(_Wire):
    commitment: _Bytes32
    leaves: Annotated[tuple[_Leaf, ...], Field(strict=False, max_length=MAX_LEAVES)]
    values: Annotated[tuple[_Bytes32, ...], Field(strict=False, max_length=MAX_LEAVES)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(left >= right for left, right in pairwise(self.leaves)):
            raise ValueError("leaves must ascend")
        if WHOLE_FILE in self.leaves:
            raise ValueError("the whole file is no leaf that a NoFault can name")
        if len(self.values) not in (0, len(self.leaves)):
            raise ValueError("values must be empty or one per leaf")
        return self


class _Fault(_Wire):
    run: _Run
    commitment: _Bytes32
    leaf: _Leaf
    check: Annotated[int, Field(ge=0, le=MAX_CHECK)]
    evidence: _Bytes32


class _Clear(_Wire):
    run: _Run
    commitment: _Bytes32
    leaf: _Leaf


class _Envelope(_Wire):
    kind: Kind
    message: dict[str, Any]
    signature: Annotated[bytes, BeforeValidator(_hex(SIGNATURE_BYTES))]


_KINDS: Final[dict[str, tuple[type[_Wire], type[Statement]]]] = {
    "Have": (_Have, Have),
    "NoFault": (_NoFault, NoFault),
    "Fault": (_Fault, Fault),
    "Clear": (_Clear, Clear),
}


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A verdict and its signature; who signed it, and whether that one may, is for `recover` and the caller."""

    kind: Kind
    message: Statement
    signature: bytes

    @property
    def commitment(self) -> Digest:
        return self.message.commitment

    def encode(self) -> dict[str, Any]:
        """JSON object: kind, message (its fields by name) and signature."""
        message = {field.name: _json(getattr(self.message, field.name)) for field in fields(self.message)}
        return {"kind": self.kind, "message": message, "signature": _json(self.signature)}

    @classmethod
    def parse(cls, data: object) -> Self:
        """The message in decoded JSON `data`.

        Raises:
            MalformedMessage: another kind, an unknown or missing field, a value of another type or out of range. The
                text repeats nothing that was sent but the names of fields, cut short and escaped.
        """
        try:
            envelope = _Envelope.model_validate(data)
            wire, kind = _KINDS[envelope.kind]
            values = wire.model_validate(envelope.message).model_dump()
        except ValidationError as error:
            raise MalformedMessage(f"signed message: {first_problem(error, 'message')}") from None
        return cls(envelope.kind, kind(**values), envelope.signature)


def _json(value: object) -> object:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return [_json(item) for item in value] if isinstance(value, tuple) else value
