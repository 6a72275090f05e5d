"""Deployment files: written, read back, and refused when they are anything else."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import Address
from ledger.deployment import MAX_FILE_BYTES, Deployment, _parse, for_chain
from ledger.errors import NotDeployed

# EIP-55's own examples of checksummed addresses
TOKEN = Address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
STAKING = Address("0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359")
COORDINATOR = Address("0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB")
DEPLOYMENT = Deployment(84532, TOKEN, STAKING, COORDINATOR, 12_345_678, 5)


def test_a_saved_deployment_is_read_back(tmp_path: Path) -> None:
    DEPLOYMENT.save(tmp_path / "84532.json")
    assert Deployment.load(tmp_path / "84532.json") == DEPLOYMENT


def test_a_chain_without_a_deployment_has_none() -> None:
    assert for_chain(31337) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chain_id": "84532"}, "chain_id"),
        ({"chain_id": 0}, "chain_id"),
        ({"token": TOKEN.lower()}, "token: .*checksum"),
        ({"staking": "0x00"}, "staking"),
        ({"coordinator": None}, "coordinator"),
        ({"block": -1}, "block"),
        ({"confirmations": 2**30}, "confirmations"),
        ({"owner": TOKEN}, "owner"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, changes: dict, said: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(asdict(DEPLOYMENT) | changes))
    with pytest.raises(NotDeployed, match=said):
        Deployment.load(path)


def test_a_missing_or_endless_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotDeployed, match="No such file"):
        Deployment.load(tmp_path / "none.json")
    (tmp_path / "long.json").write_text(" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(NotDeployed, match="over"):
        Deployment.load(tmp_path / "long.json")


@settings(deadline=None, max_examples=50)
@given(st.binary() | st.recursive(st.none() | st.integers(), st.lists).map(lambda value: json.dumps(value).encode()))
def test_any_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(NotDeployed):
        _parse(content, "hostile")
