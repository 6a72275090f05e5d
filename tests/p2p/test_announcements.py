"""Announcements: one encoding each, parsed as hostile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import Digest, Version
from node.errors import Malformed
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.announcements import (
    MAX_BITMAP_BYTES,
    MAX_BYTES,
    MAX_COMMITMENTS,
    Heartbeat,
    Held,
    News,
    NewVersion,
    Offers,
    Scope,
    Verdicts,
    announce,
    encode_news,
    parse,
    parse_news,
)
from node.p2p.identity import make_statement
from node.p2p.keys import public_key_of
from tests.p2p.parts import BLOCK_TIME, SCOPE, STAKING, account, secret

PEER = peer_id(public_key_of(secret(7)))
STATEMENT = make_statement(account(7), STAKING, PEER, BLOCK_TIME)
ROOT = Digest(b"\x05" * 32)
EVERY: list[News] = [
    Heartbeat("http://203.0.113.7:8700", (PeerAddress("203.0.113.7", 4001, PEER),)),
    Heartbeat("", ()),
    NewVersion(Version(3), ROOT),
    Held(ROOT, 9, b"\xff\x01"),
    Offers((ROOT, Digest(b"\x06" * 32))),
    Verdicts(ROOT, b"[]"),
]


def said(news: News, scope: Scope = SCOPE) -> bytes:
    return announce(news, scope, secret(7), STATEMENT, 1_700_000_000_123)


@pytest.mark.parametrize("news", EVERY, ids=lambda news: type(news).__name__)
def test_what_is_announced_reads_back_with_who_said_it(news: News) -> None:
    message = parse(said(news), SCOPE)

    assert (message.news, message.milliseconds, message.peer) == (news, 1_700_000_000_123, PEER)
    assert message.statement == STATEMENT


def test_the_bytes_of_an_announcement_are_those_of_the_protocol() -> None:
    """By hand: format, kind 2, run, milliseconds, key, statement, length 40, version 3, root, signature."""
    data = said(NewVersion(Version(3), ROOT))

    head = bytes([1, 2]) + (1).to_bytes(8, "big") + (1_700_000_000_123).to_bytes(8, "big")
    assert data[:18] == head
    assert data[18:50] == public_key_of(secret(7))
    assert data[50:143] == STATEMENT.encode()
    assert data[143:147] == (40).to_bytes(4, "big")
    assert data[147:187] == (3).to_bytes(8, "big") + ROOT
    assert len(data) == 187 + 64


def test_an_announcement_with_any_bit_changed_is_refused() -> None:
    data = said(NewVersion(Version(3), ROOT))

    for place in range(0, len(data), 7):
        bent = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(Malformed):
            parse(bent, SCOPE)


def test_an_announcement_of_another_run_or_chain_is_refused() -> None:
    with pytest.raises(Malformed):
        parse(said(NewVersion(Version(3), ROOT), Scope(SCOPE.domain, 2)), SCOPE)
    with pytest.raises(Malformed):
        parse(said(NewVersion(Version(3), ROOT), Scope(STAKING, 1)), SCOPE)


def test_the_largest_announcements_fit_and_a_larger_one_is_said_to_be_too_large() -> None:
    offers = Offers(tuple(Digest(n.to_bytes(32, "big")) for n in range(MAX_COMMITMENTS)))
    held = Held(ROOT, 8 * MAX_BITMAP_BYTES, b"\xff" * MAX_BITMAP_BYTES)

    assert parse(said(offers), SCOPE).news == offers
    assert parse(said(held), SCOPE).news == held
    assert len(said(offers)) < MAX_BYTES
    with pytest.raises(Malformed, match="are sent"):
        said(Held(ROOT, 8 * 65_500, bytes(65_500)))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (0, b""),
        (5, b""),
        (1, b""),
        (1, b"\x00"),
        (1, b"\x00\x05http"),
        (1, b"\x00\x02\xff\xff"),
        (1, b"\x01\x01" + b"a" * 257),
        (1, b"\x00\x01\n"),
        (1, b"\x00\x00" + b"\x00\x04/ip4"),
        (1, b"\x00\x00" * 6),
        (2, bytes(39)),
        (2, bytes(41)),
        (3, bytes(35)),
        (3, bytes(32) + (9).to_bytes(4, "big") + b"\xff"),
        (3, bytes(32) + (9).to_bytes(4, "big") + b"\xff\x02"),
        (3, bytes(32) + (2**32 - 1).to_bytes(4, "big")),
        (4, b""),
        (4, bytes(33)),
        (4, bytes(32 * (MAX_COMMITMENTS + 1))),
    ],
)
def test_a_payload_that_is_not_its_kinds_is_refused(kind: int, payload: bytes) -> None:
    with pytest.raises(Malformed):
        parse_news(kind, payload)


@settings(deadline=None)
@given(st.integers(0, 5), st.binary(max_size=200))
def test_any_payload_has_one_encoding_or_is_refused(kind: int, payload: bytes) -> None:
    try:
        news = parse_news(kind, payload)
    except Malformed:
        return
    assert encode_news(news) == payload


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse(data, SCOPE)
