"""EIP-712 messages against the protocol's vectors and a second encoding, and their JSON against hostile input."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from eth_abi import encode as abi_encode
from eth_account import Account
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import WHOLE_FILE, Address, Digest, Fault, RunId
from ledger.errors import InvalidSignature, MalformedMessage
from ledger.messages import (
    Batch,
    Clear,
    Domain,
    Have,
    Message,
    NodeAuthorization,
    NoFault,
    PeerIdentity,
    SignedMessage,
    recover,
    sign,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "protocol1.json").read_text())
INPUTS, EXPECTED = VECTORS["inputs"], VECTORS["expected"]
DOMAIN = Domain(INPUTS["chainId"], Address(INPUTS["contract"]))
COMMITMENT = Digest(bytes.fromhex(EXPECTED["commitment"][2:]))
RUN = RunId(INPUTS["run"])
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
ALICE = Account.from_key("0x" + "01" * 32)
HAVE = Have(COMMITMENT, 1_700_000_000)
FAULT = Fault(RUN, COMMITMENT, 1, 8, Digest(b"\x99" * 32))

MESSAGES: list[Message] = [
    HAVE,
    NoFault(COMMITMENT, (2, 5)),
    NoFault(COMMITMENT, (0, 3), (Digest(b"\x01" * 32), Digest(b"\x02" * 32))),
    Batch(RUN, (COMMITMENT, Digest(b"\x03" * 32))),
    FAULT,
    Clear(RUN, COMMITMENT, WHOLE_FILE),
    NodeAuthorization(Address("0x" + "aa" * 20), Address("0x" + "bb" * 20), 4, 1_800_000_000),
    PeerIdentity(Address("0x" + "bb" * 20), b"\x00\x24\x08\x01\x12\x20" + b"\x05" * 32, 1_800_000_000),
]
VERDICTS = [message for message in MESSAGES if isinstance(message, Have | NoFault | Fault | Clear)]


def _words(*values: int) -> bytes:
    return b"".join(value.to_bytes(32, "big") for value in values)


def _struct_hash(message: Message) -> bytes:
    """EIP-712 by hand: type hash and one word per field."""
    match message:
        case Have(commitment, time):
            return keccak(keccak(text="Have(bytes32 commitment,uint40 time)") + commitment + _words(time))
        case NoFault(commitment, leaves, values):
            kind = keccak(text="NoFault(bytes32 commitment,uint32[] leaves,bytes32[] values)")
            return keccak(kind + commitment + keccak(_words(*leaves)) + keccak(b"".join(values)))
        case Batch(run, commitments):
            kind = keccak(text="Batch(uint256 run,bytes32 commitmentsHash)")
            return keccak(kind + _words(run) + keccak(b"".join(commitments)))
        case Fault(run, commitment, leaf, check, evidence):
            kind = keccak(text="Fault(uint256 run,bytes32 commitment,uint32 leaf,uint8 check,bytes32 evidence)")
            return keccak(kind + _words(run) + commitment + _words(leaf, check) + evidence)
        case Clear(run, commitment, leaf):
            kind = keccak(text="Clear(uint256 run,bytes32 commitment,uint32 leaf)")
            return keccak(kind + _words(run) + commitment + _words(leaf))
        case NodeAuthorization(provider, node, nonce, deadline):
            kind = keccak(text="NodeAuthorization(address provider,address node,uint256 nonce,uint256 deadline)")
            return keccak(kind + _words(int(provider, 16), int(node, 16), nonce, deadline))
        case PeerIdentity(node, peer_id, deadline):
            kind = keccak(text="PeerIdentity(address node,bytes peerId,uint256 deadline)")
            return keccak(kind + _words(int(node, 16)) + keccak(peer_id) + _words(deadline))


def _signature_of(digest: bytes) -> bytes:
    """Of Alice, over a digest that was made without the code under test; RFC 6979 leaves no choice."""
    return bytes(Account.unsafe_sign_hash(digest, ALICE.key).signature)


@pytest.mark.parametrize(
    "message",
    [
        HAVE,
        NoFault(COMMITMENT, tuple(EXPECTED["draw"]["leaves"])),
        Batch(RUN, tuple(Digest(bytes.fromhex(entry[2:])) for entry in INPUTS["batch"])),
        FAULT,
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_signed_is_the_digest_of_the_vectors(message: Message) -> None:
    expected = bytes.fromhex(EXPECTED[f"eip712_digest_{type(message).__name__}"][2:])
    assert sign(ALICE, DOMAIN, message) == _signature_of(expected)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_signed_is_the_digest_of_an_encoding_by_hand(message: Message) -> None:
    kind = keccak(text="EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
    fields = (kind, keccak(text="intellect-node"), keccak(text="1"), DOMAIN.chain_id, DOMAIN.contract)
    separator = keccak(abi_encode(["bytes32", "bytes32", "bytes32", "uint256", "address"], fields))

    assert separator.hex() == EXPECTED["domain_separator"][2:]
    assert sign(ALICE, DOMAIN, message) == _signature_of(keccak(b"\x19\x01" + separator + _struct_hash(message)))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_signature_recovers_to_its_signer(message: Message) -> None:
    signature = sign(ALICE, DOMAIN, message)

    assert (len(signature), signature[64] in (27, 28)) == (65, True)
    assert int.from_bytes(signature[32:64]) <= ORDER // 2
    assert recover(DOMAIN, message, signature) == ALICE.address


def test_a_signature_counts_in_one_domain_only() -> None:
    signature = sign(ALICE, DOMAIN, HAVE)

    assert recover(Domain(1, DOMAIN.contract), HAVE, signature) != ALICE.address
    assert recover(Domain(DOMAIN.chain_id, Address("0x" + "22" * 20)), HAVE, signature) != ALICE.address


def test_the_mirrored_signature_of_the_upper_half_is_refused() -> None:
    signature = sign(ALICE, DOMAIN, HAVE)
    mirrored = ORDER - int.from_bytes(signature[32:64])

    with pytest.raises(InvalidSignature, match="upper half"):
        recover(DOMAIN, HAVE, signature[:32] + mirrored.to_bytes(32) + bytes([55 - signature[64]]))


@pytest.mark.parametrize("v", [0, 1, 26, 29, 255])
def test_another_v_is_refused(v: int) -> None:
    with pytest.raises(InvalidSignature, match="27 or 28"):
        recover(DOMAIN, HAVE, sign(ALICE, DOMAIN, HAVE)[:64] + bytes([v]))


@pytest.mark.parametrize("length", [0, 64, 66])
def test_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidSignature, match="65 bytes"):
        recover(DOMAIN, HAVE, bytes(length))


@pytest.mark.parametrize(("r", "s"), [(0, 1), (1, 0), (ORDER, 1), (2**256 - 1, 1), (5, 1)])
def test_a_signature_that_no_key_made_is_refused(r: int, s: int) -> None:
    """5 is the abscissa of no point of secp256k1: 5^3 + 7 = 132 is no square modulo its prime."""
    with pytest.raises(InvalidSignature, match="no key"):
        recover(DOMAIN, HAVE, r.to_bytes(32) + s.to_bytes(32) + b"\x1b")


@given(st.binary(max_size=80))
@settings(max_examples=60, deadline=None)
def test_random_bytes_recover_to_an_address_or_are_refused(signature: bytes) -> None:
    with contextlib.suppress(InvalidSignature):
        assert recover(DOMAIN, HAVE, signature).startswith("0x")


# --- JSON


def _signed(message: Message) -> SignedMessage:
    assert isinstance(message, Have | NoFault | Fault | Clear)
    return SignedMessage(type(message).__name__, message, sign(ALICE, DOMAIN, message))  # type: ignore[arg-type]


def test_the_json_of_a_fault_is_as_the_protocol_says() -> None:
    signature = sign(ALICE, DOMAIN, FAULT)

    assert SignedMessage("Fault", FAULT, signature).encode() == {
        "kind": "Fault",
        "message": {
            "run": 7,
            "commitment": EXPECTED["commitment"],
            "leaf": 1,
            "check": 8,
            "evidence": "0x" + "99" * 32,
        },
        "signature": "0x" + signature.hex(),
    }


@pytest.mark.parametrize("message", VERDICTS, ids=lambda message: type(message).__name__)
def test_a_signed_message_survives_json(message: Message) -> None:
    signed = _signed(message)

    read = SignedMessage.parse(json.loads(json.dumps(signed.encode())))

    assert read == signed
    assert read.commitment == COMMITMENT
    assert recover(DOMAIN, read.message, read.signature) == ALICE.address


@given(
    st.lists(st.integers(0, WHOLE_FILE - 1), unique=True, max_size=20),
    st.booleans(),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=65, max_size=65),
)
@settings(max_examples=40, deadline=None)
def test_any_no_fault_survives_json(leaves: list[int], with_values: bool, value: bytes, signature: bytes) -> None:
    values = (Digest(value),) * len(leaves) if with_values else ()
    signed = SignedMessage("NoFault", NoFault(Digest(value), tuple(sorted(leaves)), values), signature)

    assert SignedMessage.parse(json.loads(json.dumps(signed.encode()))) == signed


def _changed(message: Message, path: str, value: object) -> dict[str, Any]:
    data = _signed(message).encode()
    target, name = (data, path) if "." not in path else (data["message"], path.split(".")[1])
    target[name] = value
    return data


@pytest.mark.parametrize(
    ("message", "path", "value"),
    [
        (HAVE, "kind", "Batch"),
        (HAVE, "kind", "Fault"),
        (HAVE, "kind", ["Have"]),
        (HAVE, "extra", 1),
        (HAVE, "message", None),
        (HAVE, "message", {}),
        (HAVE, "message.extra", 1),
        (HAVE, "message.time", -1),
        (HAVE, "message.time", 2**40),
        (HAVE, "message.time", 1.0),
        (HAVE, "message.time", True),
        (HAVE, "message.time", "5"),
        (HAVE, "message.commitment", "0x" + "AB" * 32),
        (HAVE, "message.commitment", "ab" * 32),
        (HAVE, "message.commitment", "0x" + "ab" * 31),
        (HAVE, "message.commitment", "0x" + "ab" * 32 + "\n"),
        (HAVE, "message.commitment", 5),
        (HAVE, "signature", "0x" + "ab" * 64),
        (HAVE, "signature", None),
        (FAULT, "message.run", 2**53),
        (FAULT, "message.leaf", 2**32),
        (FAULT, "message.check", 11),
        (FAULT, "message.check", -1),
        (NoFault(COMMITMENT, (1, 2)), "message.leaves", [2, 1]),
        (NoFault(COMMITMENT, (1, 2)), "message.leaves", [1, 1]),
        (NoFault(COMMITMENT, (1, 2)), "message.leaves", [WHOLE_FILE]),
        (NoFault(COMMITMENT, (1, 2)), "message.leaves", list(range(2**16 + 1))),
        (NoFault(COMMITMENT, (1, 2)), "message.leaves", "12"),
        (NoFault(COMMITMENT, (1, 2)), "message.values", ["0x" + "00" * 32]),
    ],
)
def test_ill_formed_json_is_refused(message: Message, path: str, value: object) -> None:
    with pytest.raises(MalformedMessage, match="signed message"):
        SignedMessage.parse(_changed(message, path, value))


@pytest.mark.parametrize("data", [None, 5, "Have", [], {}, {"kind": "Have"}])
def test_json_of_another_shape_is_refused(data: object) -> None:
    with pytest.raises(MalformedMessage):
        SignedMessage.parse(data)


def test_a_refusal_neither_repeats_the_input_nor_breaks_the_log_line() -> None:
    with pytest.raises(MalformedMessage) as refusal:
        SignedMessage.parse(_changed(HAVE, "kind", "SECRET" * 1000) | {"line\nbreak" + "x" * 1000: 1})

    assert "SECRET" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["kind", "message", "signature"]), inner)
    ),
    max_leaves=10,
)


@given(_JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_is_refused_in_one_way(data: object) -> None:
    with pytest.raises(MalformedMessage):
        SignedMessage.parse(data)
