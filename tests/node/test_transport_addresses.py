"""Which addresses and URLs a node asks, and whom it counts as one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import Malformed
from node.ip import is_public, subscriber
from node.transport import vet_url


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "2001:db8::1", "x", "",
    ],
)  # fmt: skip
def test_an_address_is_refused_when_it_is_not_on_the_public_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_is_public_when_the_internet_routes_it(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.org", "example.org", "//example.org", "http://", "http:///x", "",
        "http://user:pw@example.org", "http://user@example.org", "http://example.org?x=1", "http://example.org#x",
        "http://example.org:0", "http://example.org:99999", "http://example.org:x", "http://exa mple.org",
        "http://example.org/\r\nX: y", "http://[::1", "http://127.0.0.1:80", "http://[::1]:80", "http://[fe80::1]",
        "http://169.254.169.254/latest", "http://" + "a" * 250 + ".org", "http://\ud800.org", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_an_endpoint_is_refused_when_it_is_hostile(url: str) -> None:
    with pytest.raises(Malformed):
        vet_url(url, allow_private=False)


@pytest.mark.parametrize(
    ("url", "chunk"),
    [
        ("http://example.org", "http://example.org/v1/x"),
        ("https://example.org:8443/", "https://example.org:8443/v1/x"),
        ("http://8.8.8.8:80/node/", "http://8.8.8.8/node/v1/x"),
        ("http://[2606:4700::1111]:81", "http://[2606:4700::1111]:81/v1/x"),
    ],
)
def test_an_endpoint_is_a_base_for_paths_when_it_is_vetted(url: str, chunk: str) -> None:
    assert str(vet_url(url, allow_private=False) / "v1" / "x") == chunk


def test_a_private_address_is_vetted_when_the_run_is_a_devnet() -> None:
    assert str(vet_url("http://127.0.0.1:1234/", allow_private=True)) == "http://127.0.0.1:1234"


@given(st.text(max_size=300))
@settings(deadline=None, max_examples=200)
def test_vetting_ends_in_a_url_or_malformed_when_given_any_text(text: str) -> None:
    try:
        vetted = vet_url(text, allow_private=False)
    except Malformed:
        return
    assert vetted.scheme in {"http", "https"}
    assert vetted.host


def test_one_subscriber_is_counted_when_it_uses_many_ipv6_addresses() -> None:
    assert subscriber("2606:4700::1") == subscriber("2606:4700::ffff:1") == "2606:4700::"
    assert subscriber("::ffff:8.8.8.8") == subscriber("8.8.8.8") == "8.8.8.8"
