"""Seeds, commitments, draws and units, against the protocol's worked example."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.assignment import commitment, item_index, seed
from hashing.audit import audit_key, auditors, draw, points
from hashing.errors import OutOfRange
from hashing.units import rollout_units
from hashing.words import address, integer

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "protocol1.json").read_text())
GIVEN, EXPECTED = VECTORS["inputs"], VECTORS["expected"]


def raw(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_the_seed_equals_the_example() -> None:
    made = seed(
        GIVEN["chainId"], GIVEN["contract"], GIVEN["run"], raw(GIVEN["specDigest"]), GIVEN["version"],
        raw(GIVEN["manifestRoot"]), GIVEN["node"], GIVEN["slot"], raw(GIVEN["beacon"]),
    )  # fmt: skip

    assert made == raw(EXPECTED["seed"])


def test_the_commitment_equals_the_example() -> None:
    made = commitment(
        GIVEN["chainId"], GIVEN["contract"], GIVEN["run"], GIVEN["node"], GIVEN["version"], GIVEN["slot"],
        raw(EXPECTED["root"]), EXPECTED["units"], raw(GIVEN["beacon"]),
    )  # fmt: skip

    assert made == raw(EXPECTED["commitment"])


@pytest.mark.parametrize("example", EXPECTED["prompt_index"])
def test_the_prompt_of_a_group_equals_the_example(example: dict[str, Any]) -> None:
    total = sum(task["size"] for task in GIVEN["tasks"])

    assert item_index(raw(EXPECTED["seed"]), example["group"], total) == example["index"]


def test_there_is_no_prompt_among_no_items() -> None:
    with pytest.raises(OutOfRange):
        item_index(bytes(32), 0, 0)


def test_key_draw_and_auditors_equal_the_example() -> None:
    key = audit_key(raw(GIVEN["auditBeacon"]), raw(EXPECTED["commitment"]))

    assert key == raw(EXPECTED["audit_key"])
    assert list(points(key, EXPECTED["units"], GIVEN["A"])) == EXPECTED["draw"]["x"]
    assert list(draw(key, EXPECTED["unit_list"], GIVEN["A"])) == EXPECTED["draw"]["leaves"]
    for example in EXPECTED["auditors"]:
        assert set(auditors(key, example["leaf"], GIVEN["validators"])) == set(example["validators"])


@pytest.mark.parametrize("expected", [6, 7, 1000])
def test_all_leaves_are_drawn_when_as_many_are_expected(expected: int) -> None:
    assert draw(bytes(32), EXPECTED["unit_list"], expected) == (0, 1, 2, 3, 4, 5)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=30), st.integers(1, 29), st.binary(min_size=32, max_size=32))
@settings(deadline=None, max_examples=50)
def test_every_point_lies_in_its_stretch_and_in_a_drawn_leaf(units: list[int], expected: int, key: bytes) -> None:
    leaves = draw(key, units, expected)
    if expected >= len(units):
        return

    total = sum(units)
    owner = [leaf for leaf, size in enumerate(units) for _ in range(size)]
    drawn = points(key, total, expected)
    assert all(k * total // expected <= x < (k + 1) * total // expected for k, x in enumerate(drawn))
    assert leaves == tuple(sorted({owner[x] for x in drawn}))


@pytest.mark.parametrize(("units", "expected"), [([], 1), ([1, 0], 1), ([1, 1], 0)])
def test_a_draw_is_refused_when_there_is_nothing_to_draw_from(units: list[int], expected: int) -> None:
    with pytest.raises(OutOfRange):
        draw(bytes(32), units, expected)


def test_a_lone_validator_audits_alone_and_order_does_not_matter() -> None:
    one, two, three = GIVEN["validators"]

    assert auditors(bytes(32), 0, [one]) == (one,)
    assert auditors(bytes(32), 0, [three, one, two]) == auditors(bytes(32), 0, [one, two, three])


def test_units_equal_the_example() -> None:
    made = [
        rollout_units(len(r["prompt_ids"]), len(r["output_ids"]), r["index"] == 0, **GIVEN["units"])
        for r in GIVEN["rollouts"]
    ]

    assert made == EXPECTED["unit_list"]
    assert sum(made) == EXPECTED["units"]


@pytest.mark.parametrize("text", ["", "0x", "11" * 20, "0x" + "1" * 39, "0x" + "g" * 40, "0x" + "1" * 40 + "\n"])
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(OutOfRange):
        address(text)


def test_integers_are_refused_when_they_do_not_fit() -> None:
    assert integer(255, 8) == bytes(31) + b"\xff"
    for value in (-1, 256):
        with pytest.raises(OutOfRange):
            integer(value, 8)
