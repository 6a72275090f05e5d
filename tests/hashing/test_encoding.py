"""The 258 bytes of a proof: what is read, what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.encoding import PRIME, PROOF_BYTES, TOP_K, Proof
from hashing.errors import MalformedProof

COEFFICIENTS = tuple(range(TOP_K))


def encoded(modulus: int, *coefficients: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in (modulus, *coefficients))


def test_a_proof_is_modulus_then_ascending_coefficients_big_endian() -> None:
    assert Proof(65497, COEFFICIENTS).encode() == encoded(0xFFD9, *range(128))
    assert len(Proof(65497, COEFFICIENTS).encode()) == 258


@pytest.mark.parametrize("modulus", [0, 1, 64999, 65498, 65535])
def test_a_proof_is_refused_when_its_modulus_is_out_of_range(modulus: int) -> None:
    with pytest.raises(MalformedProof, match="modulus"):
        Proof.parse(encoded(modulus, *COEFFICIENTS))


@pytest.mark.parametrize("modulus", [65000, 65496, 65497])
def test_a_proof_is_read_when_its_modulus_is_just_in_range(modulus: int) -> None:
    assert Proof.parse(encoded(modulus, *COEFFICIENTS)) == Proof(modulus, COEFFICIENTS)


def test_the_null_proof_of_the_reference_is_refused() -> None:
    with pytest.raises(MalformedProof):
        Proof.parse(bytes(PROOF_BYTES))


def test_a_coefficient_is_refused_when_it_is_no_residue() -> None:
    assert Proof.parse(encoded(PRIME, *[65496] * 128)).coefficients == (65496,) * 128
    with pytest.raises(MalformedProof, match="coefficient"):
        Proof.parse(encoded(PRIME, *[0] * 127, 65497))


@pytest.mark.parametrize("coefficients", [(), (1,) * 127, (1,) * 129, (-1,) * 128])
def test_a_proof_cannot_be_made_of_other_coefficients(coefficients: tuple[int, ...]) -> None:
    with pytest.raises(MalformedProof):
        Proof(PRIME, coefficients)


@given(st.binary(max_size=600).filter(lambda data: len(data) != PROOF_BYTES))
@settings(deadline=None, max_examples=30)
def test_any_other_length_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProof, match="bytes"):
        Proof.parse(data)


@given(st.binary(min_size=PROOF_BYTES, max_size=PROOF_BYTES))
@settings(deadline=None, max_examples=50)
def test_bytes_either_parse_to_themselves_or_are_refused(data: bytes) -> None:
    try:
        proof = Proof.parse(data)
    except MalformedProof:
        return
    assert proof.encode() == data


@given(st.integers(65000, PRIME), st.lists(st.integers(0, PRIME - 1), min_size=128, max_size=128))
@settings(deadline=None, max_examples=30)
def test_a_proof_survives_its_bytes(modulus: int, coefficients: list[int]) -> None:
    proof = Proof(modulus, tuple(coefficients))

    assert Proof.parse(proof.encode()) == proof
