"""Revert data decoded by name and values; anything else decoded to something harmless."""

from eth_abi import encode
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import Reverted, SlotMismatch, reverted
from ledger.reverts import decode_revert


def _data(signature: str, *values: object) -> bytes:
    types = signature[signature.index("(") + 1 : -1]
    return keccak(text=signature)[:4] + encode(types.split(",") if types else [], values)


def test_a_custom_error_is_named_with_its_operands() -> None:
    error = decode_revert(_data("SlotMismatch(uint64,uint64)", 3, 4))
    assert type(error) is SlotMismatch
    assert error.values == {"expected": 3, "actual": 4}


def test_errors_of_all_three_contracts_are_known() -> None:
    address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # checksummed, as operands are
    for signature, values, expected in (
        ("FaucetCapExceeded(uint256,uint256)", (9, 8), {"amount": 9, "cap": 8}),
        ("NotCoordinator(address)", (address,), {"caller": address}),
        ("UnknownRun(uint256)", (2**255,), {"run": 2**255}),
        ("ZeroAddress()", (), {}),
        ("InvalidSignature()", (), {}),  # of the coordinator
        ("InvalidSignature(address,address)", (address, address), {"recovered": address, "expected": address}),
        ("AlreadySubmitted(bytes32)", (b"\x07" * 32,), {"commitment": b"\x07" * 32}),
    ):
        error = decode_revert(_data(signature, *values))
        assert (error.name, error.values) == (signature[: signature.index("(")], expected)


def test_bytes_among_the_operands_are_said_in_hex() -> None:
    error = decode_revert(_data("AlreadySubmitted(bytes32)", b"\x07" * 32))
    assert str(error) == f"AlreadySubmitted(commitment=0x{'07' * 32})"


def test_soliditys_own_errors_are_known() -> None:
    assert decode_revert(_data("Error(string)", "why")).values == {"message": "why"}
    assert decode_revert(_data("Panic(uint256)", 0x11)).values == {"code": 0x11}


def test_what_is_unknown_or_cut_short_is_named_by_its_selector() -> None:
    cut = _data("SlotMismatch(uint64,uint64)", 3, 4)[:-1]
    assert decode_revert(cut).values == {"selector": "0x" + cut[:4].hex()}
    assert type(decode_revert(cut)) is Reverted
    assert decode_revert(b"\xde\xad\xbe\xef").name == "UnknownError"
    assert decode_revert(b"").name == "NoReason"


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from(["Error(string)", "StringTooLong(string)", "UnknownRun(uint256)", ""]))
def test_any_bytes_are_some_revert(data: bytes, signature: str) -> None:
    prefix = keccak(text=signature)[:4] if signature else b""
    assert isinstance(decode_revert(prefix + data), Reverted)


def test_stake_that_is_too_little_is_said_in_tokens() -> None:
    error = reverted("InsufficientStake", {"wanted": 26373120000000000000, "available": 517120000000000000})

    assert str(error) == "26.37312 tSTAKE of stake are wanted and 0.51712 tSTAKE are there"
