"""Statements by which a peer says whose it is."""

from dataclasses import replace

import pytest

from ledger.base import Address
from ledger.messages import Domain
from node.errors import Malformed
from node.p2p.addresses import peer_id
from node.p2p.identity import (
    MAX_VALID_SECONDS,
    STATEMENT_BYTES,
    VALID_SECONDS,
    Identities,
    Statement,
    Stranger,
    make_statement,
)
from node.p2p.keys import load_secret, public_key_of
from tests.p2p.parts import BLOCK_TIME, STAKING, account, secret

NODE = account(7)
PEER = peer_id(public_key_of(secret(7)))
OTHER = peer_id(public_key_of(secret(8)))


def identities(member: bool = True, now: int = BLOCK_TIME) -> Identities:
    return Identities(STAKING, lambda node: member and node == NODE.address, lambda: now)


def test_a_statement_of_a_member_is_believed_of_its_own_peer() -> None:
    statement = make_statement(NODE, STAKING, PEER, BLOCK_TIME)

    sent = statement.encode()

    assert len(sent) == STATEMENT_BYTES == 93
    assert Statement.parse(sent) == statement
    assert identities().require(PEER, Statement.parse(sent)) == NODE.address


def test_somebody_elses_statement_is_refused_for_another_peer() -> None:
    """A statement is public: whoever repeats it must be the peer that it names."""
    statement = make_statement(NODE, STAKING, PEER, BLOCK_TIME)

    with pytest.raises(Malformed, match="not signed by it"):
        identities().require(OTHER, statement)


def test_a_statement_counts_for_one_deployment() -> None:
    elsewhere = make_statement(NODE, Domain(31337, Address("0x" + "33" * 20)), PEER, BLOCK_TIME)

    with pytest.raises(Malformed, match="not signed by it"):
        identities().require(PEER, elsewhere)


def test_a_statement_that_names_another_node_is_refused() -> None:
    statement = make_statement(account(9), STAKING, PEER, BLOCK_TIME)

    with pytest.raises(Malformed, match="not signed by it"):
        identities().require(PEER, replace(statement, node=Address(NODE.address)))


@pytest.mark.parametrize("late", [VALID_SECONDS, -(MAX_VALID_SECONDS - VALID_SECONDS) - 1])
def test_a_statement_is_refused_after_its_deadline_and_long_before_it(late: int) -> None:
    statement = make_statement(NODE, STAKING, PEER, BLOCK_TIME)

    with pytest.raises(Stranger):
        identities(now=BLOCK_TIME + late).require(PEER, statement)


def test_a_node_without_a_part_in_the_run_is_refused() -> None:
    with pytest.raises(Stranger, match="no part in the run"):
        identities(member=False).require(PEER, make_statement(NODE, STAKING, PEER, BLOCK_TIME))


@pytest.mark.parametrize("data", [b"", bytes(92), bytes(94)])
def test_a_statement_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Statement.parse(data)


def test_a_statement_with_a_bent_signature_is_refused() -> None:
    statement = make_statement(NODE, STAKING, PEER, BLOCK_TIME)

    with pytest.raises(Malformed):
        identities().require(PEER, replace(statement, signature=bytes(65)))


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state") / "deeper" / "peer.key"

    made = load_secret(path)

    assert load_secret(path) == made and len(made) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["peer.key"]
