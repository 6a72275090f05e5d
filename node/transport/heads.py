"""The head of an answer over HTTP/1.1, strictly: what says clearly how long the body is, or nothing (RFC 9112)."""

import re
from dataclasses import dataclass

from node.errors import Malformed

MAX_HEAD_BYTES = 16 << 10
MAX_LENGTH_DIGITS = 15  # a petabyte

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\x00\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):([^\x00\r\n]*)")


@dataclass(frozen=True, slots=True)
class Head:
    """`length` is None where the answer does not say it; the connection is of no use then once it is read."""

    status: int
    length: int | None
    keeps_open: bool


def parse_head(data: bytes) -> Head:
    """The head in `data`, which ends before its empty line.

    Raises:
        Malformed: it is no head, says its length twice, or that the body is encoded in any way.
    """
    first, *lines = data.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise Malformed(f"no answer over HTTP/1.1: {first[:64].decode('latin-1')!a}")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Malformed(f"a header that nobody can read: {line[:64].decode('latin-1')!a}")
        name = field[1].lower()
        if name in fields and name == b"content-length":
            raise Malformed("two lengths of one body")
        fields[name] = field[2].strip(b" \t")
    _require_plain(fields)
    keeps_open = status[1] == b"1" and b"close" not in fields.get(b"connection", b"").lower()
    return Head(int(status[2]), _length(fields), keeps_open)


def _require_plain(fields: dict[bytes, bytes]) -> None:
    for name in (b"transfer-encoding", b"content-encoding"):
        if fields.get(name, b"identity").lower() != b"identity":
            raise Malformed(f"a body with {name.decode()} {fields[name][:32].decode('latin-1')!a}")


def _length(fields: dict[bytes, bytes]) -> int | None:
    text = fields.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > MAX_LENGTH_DIGITS:
        raise Malformed(f"a length of {text[:32].decode('latin-1')!a}")
    return int(text)
