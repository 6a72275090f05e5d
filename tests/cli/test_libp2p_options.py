"""What the options of libp2p amount to, and what `status` shows of it."""

from typing import Any

import pytest

from cli.options import libp2p_of
from cli.role_options import MemberOptions, NodeOptions
from cli.status import show_standing
from node.config import Libp2p, Settings, Sharing
from node.errors import ConfigError

PEER = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


def test_libp2p_is_on_unless_told_otherwise() -> None:
    assert libp2p_of(None, 0, False) == Libp2p(True, 0, ())
    assert libp2p_of([PEER], 4001, False) == Libp2p(True, 4001, (PEER,))
    assert libp2p_of(None, 0, True) == Libp2p(False, 0, ())


@pytest.mark.parametrize(("peers", "port", "named"), [([PEER], 0, "--peer"), (None, 4001, "--p2p-port")])
def test_options_of_libp2p_are_refused_where_it_is_off(peers: list[str] | None, port: int, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named} is of no use with --no-p2p: leave out one of them"):
        libp2p_of(peers, port, True)


@pytest.mark.parametrize("peer", ["", "203.0.113.7:4001", PEER[:-1], PEER.replace("tcp", "udp"), PEER + " "])
def test_a_peer_that_is_no_address_is_said(peer: str) -> None:
    with pytest.raises(ConfigError, match="--peer: not "):
        libp2p_of([PEER, peer], 0, False)


@pytest.mark.parametrize(
    ("peer", "wrong"),
    [
        (
            "/ip4/1.2.3.4/tcp/99999/p2p/12D3KooWBad",
            "('99999' is no TCP port; '12D3KooWBad' is no Ed25519 peer id: those have 52 characters and begin with "
            "12D3Koo)",
        ),
        (PEER.replace("203.0.113.7", "a.example"), "('a.example' is no ip4 address)"),
        (PEER.replace("tcp", "udp"), "('udp' is no tcp, the only transport here)"),
        (PEER.replace("4001", "65536"), "no TCP port: 65536"),
        (PEER.replace("ip4/203.0.113.7", "dns/a b"), "('a b' is no host)"),
    ],
)
def test_what_is_wrong_with_a_peer_is_said(peer: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as error:
        libp2p_of([peer], 0, False)
    assert str(error.value).endswith(wrong)


def test_a_worker_that_nobody_could_ask_for_its_files_is_refused() -> None:
    def settings(place: NodeOptions) -> Settings:
        return place.settings(MemberOptions("w", 1), Sharing(), None, inbound=False)

    assert not settings(NodeOptions()).inbound
    with pytest.raises(ConfigError, match="--no-inbound with --no-p2p: nobody could ask"):
        settings(NodeOptions(no_p2p=True))
    with pytest.raises(ConfigError, match="--advertise with --no-inbound: say either"):
        settings(NodeOptions(advertise="http://203.0.113.7:8700"))
    with pytest.raises(ConfigError, match="--port with --no-inbound: nobody is told of that port"):
        settings(NodeOptions(port=9999))


def test_http_and_libp2p_are_not_given_the_same_port() -> None:
    def settings(port: int, p2p_port: int) -> Settings:
        place = NodeOptions(host="127.0.0.1", port=port, p2p_port=p2p_port)
        return place.settings(MemberOptions("w", 1), Sharing(), None)

    assert settings(18790, 18791).libp2p.port == 18791
    assert settings(0, 0).port == 0
    with pytest.raises(ConfigError, match="--port and --p2p-port both name port 18790: give HTTP and libp2p a port"):
        settings(18790, 18790)


ROW: dict[str, Any] = {
    "account": "0x" + "a" * 40, "on": True, "why": None, "peer_id": "12D3KooW", "port": 4001,
    "peers": [{"peer_id": "one", "node": "0x" + "b" * 40}, {"peer_id": "two", "node": "0x" + "b" * 40}],
    "announced": True, "reachable": True, "reachable_by": ["0x" + "c" * 40], "reachable_at": 0, "announcements": None,
    "at": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ["peer id 12D3KooW, port 4001", "2 peers connected: 0xbbbbbbbb…", "outside: yes, by 0xcccccccc… at "]),
        (
            {"reachable": False},
            ["outside: no, by 0xcccccccc… at ", ": forward its port, correct --advertise, or `join` "],
        ),
        ({"reachable": None}, ["outside: unknown, nobody has tried"]),
        ({"announced": False}, ["outside: not meant to be (--no-inbound)"]),
        ({"on": False, "why": "--no-p2p"}, ["off: --no-p2p"]),
    ],
)
def test_how_a_role_stands_among_its_peers_is_shown(
    capsys: pytest.CaptureFixture[str], change: dict[str, Any], words: list[str]
) -> None:
    show_standing({"block": 1, "time": 0, "peers": [ROW | change]})

    shown = capsys.readouterr().out
    assert "among its peers, by libp2p:" in shown
    assert [word for word in words if word not in shown] == []
