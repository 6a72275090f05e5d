"""What the node and its libp2p process tell each other over a socket pair.

A frame is u32 bytes of head || u32 bytes of body || head || body, big-endian; the head is JSON. It is parsed with
limits on both sides: what a peer sent must not reach the node by way of a process that it took over.
"""

import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Final, TypeVar

from node.errors import Malformed
from node.p2p.limits import MAX_BODY_BYTES

HEAD: Final = struct.Struct("!II")
MAX_HEAD_BYTES: Final = 16 << 10

# How a peer answered a request, as a byte on the wire too.
ANSWERED, REFUSED, BUSY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Start:
    """Take connections; `body` is the Ed25519 secret. First of all, and once."""

    allow_private: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    number: int
    host: str
    port: int
    peer: str


@dataclass(frozen=True, slots=True)
class Admit:
    """`peer` has shown that it is `node`'s: it may ask more than that, and all of `node`'s have limits in common."""

    peer: str
    node: str


@dataclass(frozen=True, slots=True)
class Drop:
    peer: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Have `peer` answer `body`, with at most `limit` bytes, within `milliseconds`."""

    number: int
    peer: str
    protocol: str
    limit: int
    milliseconds: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Recall:
    """Nobody waits any more for the answer to question `number`: whoever was asked is told, and sends no more of it."""

    number: int


@dataclass(frozen=True, slots=True)
class Reply:
    """To request `number` of a peer; `status` is ANSWERED, REFUSED or BUSY."""

    number: int
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Ready:
    peer: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The first connection with `peer`."""

    peer: str
    dialled: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The last connection with `peer` is gone."""

    peer: str


@dataclass(frozen=True, slots=True)
class Asked:
    number: int
    peer: str
    protocol: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Left:
    """Whoever asked `number` waits for no answer any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """Dialling or asking has succeeded; `body` is the answer."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Alive:
    """Every second: the process is not stuck."""


Order = Start | Dial | Admit | Drop | Ask | Recall | Reply
Report = Ready | Opened | Closed | Asked | Left | Done | Failed | Alive
Message = Order | Report

ORDERS: Final[dict[str, type[Order]]] = {k.__name__: k for k in (Start, Dial, Admit, Drop, Ask, Recall, Reply)}
REPORTS: Final[dict[str, type[Report]]] = {
    k.__name__: k for k in (Ready, Opened, Closed, Asked, Left, Done, Failed, Alive)
}

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """The frame of `message`. Raises: Malformed: it is over a limit; nothing was sent."""
    named = asdict(message)
    body: bytes = named.pop("body", b"")
    head = json.dumps({"kind": type(message).__name__, **named}).encode()
    _require_sizes(len(head), len(body))
    return HEAD.pack(len(head), len(body)) + head + body


def sizes(prefix: bytes) -> tuple[int, int]:
    """Bytes of head and body that follow. Raises: Malformed."""
    head, body = HEAD.unpack(prefix)
    _require_sizes(head, body)
    return head, body


def decode(kinds: dict[str, type[M]], head: bytes, body: bytes) -> M:
    """The message of a frame, which must be one of `kinds`. Raises: Malformed."""
    try:
        values = json.loads(head)
        kind = kinds[values.pop("kind")]
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
        raise Malformed(f"frame: {type(error).__name__}") from error
    wanted = {field.name: field.type for field in fields(kind) if field.name != "body"}
    if values.keys() != wanted.keys() or any(type(values[name]) is not of for name, of in wanted.items()):
        raise Malformed(f"frame of a {kind.__name__}: other fields")
    has_body = any(field.name == "body" for field in fields(kind))
    if body and not has_body:
        raise Malformed(f"frame of a {kind.__name__}: a body")
    if has_body:
        values["body"] = body
    return kind(**values)


def _require_sizes(head: int, body: int) -> None:
    if head > MAX_HEAD_BYTES or body > MAX_BODY_BYTES:
        raise Malformed(f"frame: {head} and {body} bytes; at most {MAX_HEAD_BYTES} and {MAX_BODY_BYTES} are sent")
