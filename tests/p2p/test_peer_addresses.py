"""Peer ids and addresses, which strangers write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import Malformed
from node.p2p.addresses import (
    PeerAddress,
    parse_multiaddr,
    peer_id,
    peer_id_bytes,
    split_endpoint,
    with_fragment,
)

# libp2p's specification, "Peer Ids and Keys", Ed25519 example: this public key, and what base58 makes of it by hand of
# another implementation (py-libp2p 0.8.1).
KEY = bytes.fromhex("1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
PEER = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


def test_a_peer_id_is_the_specifications_encoding_of_its_key() -> None:
    assert peer_id(KEY) == PEER
    assert peer_id_bytes(PEER) == bytes.fromhex("002408011220") + KEY


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_every_ed25519_key_has_a_peer_id_that_reads_back(key: bytes) -> None:
    assert peer_id_bytes(peer_id(key)) == bytes.fromhex("002408011220") + key


@pytest.mark.parametrize(
    "text",
    ["", "Qm" + "a" * 44, PEER[:-1], PEER + "1", PEER.replace("W", "0"), "1" + PEER, PEER + "\n", "12D3Koo" + "z" * 45],
)
def test_what_is_no_ed25519_peer_id_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        peer_id_bytes(text)


@pytest.mark.parametrize("where", ["/ip4/203.0.113.7/tcp/4001", "/ip6/2001:db8::1/tcp/1", "/dns/a.example/tcp/65535"])
def test_an_address_reads_back_as_it_is_written(where: str) -> None:
    assert str(parse_multiaddr(f"{where}/p2p/{PEER}")) == f"{where}/p2p/{PEER}"


@pytest.mark.parametrize(
    "text",
    [
        f"/ip4/1.2.3.4/udp/4001/quic-v1/p2p/{PEER}",
        "/ip4/1.2.3.4/tcp/4001",
        f"/ip4/1.2.3.4/tcp/0/p2p/{PEER}",
        f"/ip4/1.2.3.4/tcp/65536/p2p/{PEER}",
        f"/ip4/1.2.3.4/tcp/4001/p2p/{PEER}/p2p-circuit",
        f"/dns/{'a' * 250}/tcp/4001/p2p/{PEER}",
        f"/dns/a b/tcp/4001/p2p/{PEER}",
        f"/ip4/1.2.3.4/tcp/٤٠٠/p2p/{PEER}",
    ],
)
def test_another_kind_of_address_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_multiaddr(text)


def test_an_endpoint_names_the_libp2p_port_of_its_host() -> None:
    url = with_fragment("http://203.0.113.7:8700", 4001, PEER)

    assert url == f"http://203.0.113.7:8700#p2p=4001/{PEER}"
    assert split_endpoint(url) == ("http://203.0.113.7:8700", PeerAddress("203.0.113.7", 4001, PEER))
    assert split_endpoint(f"https://[2001:DB8::1]/x#p2p=1/{PEER}")[1] == PeerAddress("2001:db8::1", 1, PEER)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example:1#",
        "http://a.example:1#p2p=4001",
        f"http://a.example:1#p2p=99999/{PEER}",
        f"http://a.example:1#p2p=1/{PEER}#p2p=1/{PEER}",
        f"http://a.example:1#x&p2p=1/{PEER}",
        f"http://user@a.example:1#p2p=1/{PEER}",
        f"ftp://a.example#p2p=1/{PEER}",
        f"#p2p=1/{PEER}",
    ],
)
def test_a_fragment_that_is_not_so_names_nobody_and_is_cut_off(url: str) -> None:
    base, address = split_endpoint(url)

    assert (base, address) == (url.split("#")[0], None)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_on_chain_is_split_without_an_error(text: str) -> None:
    base, _ = split_endpoint(text)

    assert "#" not in base
