"""What a slot demands and is worth, by the protocol's worked example."""

from typing import Any

from hashing.assignment import commitment
from ledger.base import Address, Digest, RunId, Version
from node.rollouts.assignment import Assignment, assign, file_units, unit_list
from node.rollouts.file import encode_file, file_root, size_limit
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec


def digest(text: str) -> Digest:
    return Digest(bytes.fromhex(text.removeprefix("0x")))


def assigned(spec: RunSpec, inputs: dict[str, Any], slot: int) -> Assignment:
    return assign(
        spec,
        inputs["chainId"],
        Address(inputs["contract"]),
        RunId(inputs["run"]),
        digest(inputs["specDigest"]),
        Version(inputs["version"]),
        digest(inputs["manifestRoot"]),
        Address(inputs["node"]),
        slot,
        digest(inputs["beacon"]),
    )


def test_seed_and_items_are_the_protocols(vectors: dict[str, Any], spec: RunSpec) -> None:
    assert assigned(spec, vectors["inputs"], 2) == Assignment(
        run=RunId(7),
        version=Version(3),
        slot=2,
        seed=digest("0x99951962fac313f81a1cb05ff27cfa05c27bd3f6f522b9404248c9f5a3c958c3"),
        beacon=digest("0x" + "55" * 32),
        items=(1072, 851, 738),
    )


def test_another_slot_has_another_seed(vectors: dict[str, Any], spec: RunSpec) -> None:
    assert assigned(spec, vectors["inputs"], 3).seed != assigned(spec, vectors["inputs"], 2).seed


def test_units_are_the_protocols(vectors: dict[str, Any], spec: RunSpec, rollouts: tuple[Rollout, ...]) -> None:
    assert list(unit_list(rollouts, spec)) == vectors["expected"]["unit_list"]
    assert file_units(rollouts, spec) == vectors["expected"]["units"]


def test_a_file_leads_to_the_protocols_root_and_commitment(
    vectors: dict[str, Any], spec: RunSpec, rollouts: tuple[Rollout, ...]
) -> None:
    inputs, expected = vectors["inputs"], vectors["expected"]

    top = file_root(encode_file(rollouts), size_limit(spec))
    committed = commitment(
        inputs["chainId"],
        inputs["contract"],
        inputs["run"],
        inputs["node"],
        inputs["version"],
        inputs["slot"],
        top,
        file_units(rollouts, spec),
        digest(inputs["beacon"]),
    )

    assert "0x" + top.hex() == expected["root"]
    assert "0x" + committed.hex() == expected["commitment"]
