"""Heads of answers: what is read of them, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import Malformed
from node.transport.heads import Head, parse_head


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", Head(200, 5, True)),
        (b"HTTP/1.1 200 OK\r\ncontent-length:5\r\nX-Y: \t a b \t", Head(200, 5, True)),
        (b"HTTP/1.1 404 Not Found", Head(404, None, True)),
        (b"HTTP/1.1 404", Head(404, None, True)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close", Head(200, 0, False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 7", Head(200, 7, False)),
        (b"HTTP/1.1 200 \xff\r\nContent-Length: 999999999999999", Head(200, 10**15 - 1, True)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 1", Head(200, 1, True)),
    ],
)
def test_a_head_is_read_when_it_is_clear(data: bytes, head: Head) -> None:
    assert parse_head(data) == head


@pytest.mark.parametrize(
    "data",
    [
        b"", b"SSH-2.0-OpenSSH_9.2", b"HTTP/2 200", b"HTTP/1.1 2000 OK", b"HTTP/1.1 abc", b" HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5", b"HTTP/1.1 200 OK\r\nContent-Length: -5",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5", b"HTTP/1.1 200 OK\r\nContent-Length: 0x5",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xc2\xb2", b"HTTP/1.1 200 OK\r\nContent-Length:",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5", b"HTTP/1.1 200 OK\r\n Content-Length: 5",
        b"HTTP/1.1 200 OK\nContent-Length: 5", b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nno colon", b"HTTP/1.1 200 OK\r\n\r\nContent-Length: 5",
    ],
)  # fmt: skip
def test_a_head_is_malformed_when_it_can_be_read_in_two_ways_or_none(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse_head(data)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"HTTP/1.1 200 OK\r\n" + data))
def test_parsing_ends_in_a_head_or_malformed_when_given_any_bytes(data: bytes) -> None:
    try:
        head = parse_head(data)
    except Malformed as error:
        assert len(str(error)) < 400
    else:
        assert 100 <= head.status < 600
        assert head.length is None or 0 <= head.length < 10**15


def test_a_head_of_nothing_but_spaces_is_read_at_once() -> None:
    parse_head(b"HTTP/1.1 200 OK\r\nA:" + b" \t" * 8000 + b"x" + b" " * 100)
