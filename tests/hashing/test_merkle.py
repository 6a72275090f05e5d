"""The tree over leaves, against the protocol's example and trees written out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from eth_hash.auto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing import merkle
from hashing.errors import OutOfRange

EXPECTED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "protocol1.json").read_text())[
    "expected"
]
LEAVES = [bytes.fromhex(leaf[2:]) for leaf in EXPECTED["leaves"]]
A, B, C = (bytes([byte]) * 32 for byte in (0xA, 0xB, 0xC))


def node(left: bytes, right: bytes) -> bytes:
    return bytes(keccak(b"\x01" + left + right))


def test_root_and_path_equal_the_protocols_example() -> None:
    assert merkle.root(LEAVES).hex() == EXPECTED["root"][2:]
    assert [sibling.hex() for sibling in merkle.path(LEAVES, 4)] == [s[2:] for s in EXPECTED["merkle_path_of_leaf_4"]]


def test_a_leaf_is_keccak_of_its_preimage() -> None:
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"  # keccak256(""), known everywhere

    assert merkle.leaf_hash(b"").hex() == empty


def test_a_single_leaf_is_the_root_and_has_no_path() -> None:
    assert merkle.root([A]) == A
    assert merkle.path([A], 0) == ()
    assert merkle.verify_path(A, A, 0, 1, ())


def test_the_last_node_of_an_odd_level_goes_up_unchanged() -> None:
    assert merkle.root([A, B, C]) == node(node(A, B), C)
    assert merkle.path([A, B, C], 2) == (node(A, B),)
    assert merkle.path([A, B, C], 1) == (A, C)


@given(st.integers(1, 40), st.data())
@settings(deadline=None, max_examples=40)
def test_every_path_leads_to_the_root_and_only_from_its_place(rows: int, data: st.DataObject) -> None:
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(rows)]
    index, other = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, rows - 1))
    root, path = merkle.root(leaves), merkle.path(leaves, index)

    assert merkle.verify_path(root, leaves[index], index, rows, path)
    assert merkle.verify_path(root, leaves[other], index, rows, path) is (other == index)


def test_a_path_is_wrong_when_it_is_short_or_long_or_altered() -> None:
    root, path = merkle.root(LEAVES), merkle.path(LEAVES, 3)

    assert merkle.verify_path(root, LEAVES[3], 3, 6, path)
    assert not merkle.verify_path(root, LEAVES[3], 3, 6, path[:-1])
    assert not merkle.verify_path(root, LEAVES[3], 3, 6, (*path, A))
    assert not merkle.verify_path(root, LEAVES[3], 3, 6, (A, *path[1:]))
    assert not merkle.verify_path(root, LEAVES[3], 2, 6, path)
    assert not merkle.verify_path(root, LEAVES[3], 3, 6, (path[0][:31], *path[1:]))


@pytest.mark.parametrize("index", [-1, 6])
def test_a_leaf_outside_the_tree_has_no_path(index: int) -> None:
    assert not merkle.verify_path(merkle.root(LEAVES), LEAVES[0], index, 6, ())
    with pytest.raises(OutOfRange):
        merkle.path(LEAVES, index)


def test_there_is_no_tree_without_leaves() -> None:
    with pytest.raises(OutOfRange):
        merkle.root([])
