"""The files that the ledger client reads: stable, free of the machine they were made on, and deployable."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from contracts.script.export_abi import ABI, CONTRACTS, ROOT, exported, stale

MAX_RUNTIME_BYTES = 24_576  # EIP-170
ARTIFACT: dict[str, Any] = {
    "abi": [
        {"type": "function", "name": "b", "inputs": []},
        {"type": "error", "name": "z", "inputs": []},
        {"type": "function", "name": "a", "inputs": []},
    ],
    "bytecode": {"object": "0x6001"},
    "deployedBytecode": {
        "object": "0x00aabb",
        "immutableReferences": {"9": [{"start": 70, "length": 32}], "12": [{"start": 5, "length": 32}]},
    },
    "ast": {"absolutePath": "/somebody/at/home"},
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name in CONTRACTS:
        path = tmp_path / "out" / f"{name}.sol" / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(ARTIFACT))
    return tmp_path / "out"


def test_an_export_holds_sorted_entries_and_what_recognises_the_deployed_code() -> None:
    content = json.loads(exported(ARTIFACT))

    assert [entry["name"] for entry in content["abi"]] == ["z", "a", "b"]
    assert content["bytecode"] == "0x6001"
    assert content["immutable_ranges"] == [[5, 32], [70, 32]]
    assert content["runtime_sha256"] == hashlib.sha256(b"\x00\xaa\xbb").hexdigest()


def test_an_export_says_nothing_of_the_machine_it_was_made_on() -> None:
    assert "somebody" not in exported(ARTIFACT)


def test_a_missing_or_differing_file_is_stale_and_a_written_one_is_not(out: Path, tmp_path: Path) -> None:
    abi = tmp_path / "abi"
    abi.mkdir()
    for path, text in stale(out, abi).items():
        path.write_text(text)
    assert stale(out, abi) == {}

    (abi / "Staking.json").write_text("{}")
    assert list(stale(out, abi)) == [abi / "Staking.json"]


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_committed_files_are_deployable_and_name_no_path(name: str) -> None:
    text = (ABI / f"{name}.json").read_text()
    content = json.loads(text)

    assert len(bytes.fromhex(content["bytecode"][2:])) < 2 * MAX_RUNTIME_BYTES  # EIP-3860
    assert str(ROOT) not in text
