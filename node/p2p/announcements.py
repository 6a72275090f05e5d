"""What nodes announce to everybody: signed, under 64 KiB, with one encoding each, parsed as hostile.

u8 1 || u8 kind || u64 run || u64 milliseconds || 32 key || 93 statement || u32 length || payload || 64 signature,
big-endian. The signature, by the libp2p key, is over "in/announcement/1" || u64 chain id || 20 coordinator || all
before it; the statement says whose node the key is. So whoever gets it, from whomever, knows who said it and for which
run.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ledger.base import MAX_URL_BYTES, Digest, Version
from ledger.messages import Domain
from node.errors import Malformed
from node.p2p.addresses import MAX_ADDRESS_CHARACTERS, PeerAddress, parse_multiaddr, peer_id
from node.p2p.identity import STATEMENT_BYTES, Statement
from node.p2p.keys import KEY_BYTES, SIGNATURE_BYTES, is_signed, public_key_of, sign

MAX_BYTES: Final = 65_535  # protocol, "Gossip": under 64 KiB
TAG: Final = b"in/announcement/1"
FORMAT: Final = 1
HEAD: Final = struct.Struct(f"!BBQQ{KEY_BYTES}s{STATEMENT_BYTES}sI")
MAX_PAYLOAD_BYTES: Final = MAX_BYTES - HEAD.size - SIGNATURE_BYTES
MAX_ADDRESSES: Final = 4
MAX_BITMAP_BYTES: Final = 32 << 10  # of chunks of 4 MiB: a terabyte of weights
MAX_COMMITMENTS: Final = 1024

_VERSION: Final = struct.Struct("!Q32s")
_HELD: Final = struct.Struct("!32sI")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Its sender is there: its endpoint, empty where nobody can connect to it, and where its libp2p listens."""

    endpoint: str
    addresses: tuple[PeerAddress, ...]


@dataclass(frozen=True, slots=True)
class NewVersion:
    """The chain has a new version, by its sender's word: a reason to look, and no more."""

    version: Version
    root: Digest


@dataclass(frozen=True, slots=True)
class Held:
    """Which of `chunks` chunks of checkpoint `root` its sender holds: chunk n is bit n mod 8 of byte n // 8."""

    root: Digest
    chunks: int
    bitmap: bytes


@dataclass(frozen=True, slots=True)
class Offers:
    """The rollout files that its sender holds, by commitment."""

    commitments: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What validators signed about a submission: `messages` as `node.peers.wire` has them, whoever hears them looks."""

    commitment: Digest
    messages: bytes


News = Heartbeat | NewVersion | Held | Offers | Verdicts
KINDS: Final[dict[type[News], int]] = {Heartbeat: 1, NewVersion: 2, Held: 3, Offers: 4, Verdicts: 5}


@dataclass(frozen=True, slots=True)
class Scope:
    """The run that an announcement is about: on one chain, of one coordinator (`domain`)."""

    domain: Domain
    run: int


@dataclass(frozen=True, slots=True)
class Announcement:
    """`news` by `peer`, which says by `statement` whose it is; `data` is what is sent on."""

    news: News
    milliseconds: int
    peer: str
    statement: Statement
    data: bytes


def announce(news: News, scope: Scope, secret: bytes, statement: Statement, milliseconds: int) -> bytes:
    """The bytes of an announcement. Raises: Malformed: others would refuse it, so it is not sent."""
    payload = encode_news(news)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Malformed(f"an announcement of {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are sent")
    parse_news(KINDS[type(news)], payload)
    head = HEAD.pack(FORMAT, KINDS[type(news)], scope.run, milliseconds, public_key_of(secret), statement.encode(),
                     len(payload))  # fmt: skip
    return head + payload + sign(secret, _signed(scope, head + payload))


def parse(data: bytes, scope: Scope) -> Announcement:
    """The announcement in `data`, which its key has signed for this run; whose key it is, is not looked at.

    Raises: Malformed.
    """
    if not HEAD.size + SIGNATURE_BYTES <= len(data) <= MAX_BYTES:
        raise Malformed(f"an announcement of {len(data)} bytes")
    form, kind, run, milliseconds, key, statement, length = HEAD.unpack_from(data)
    signed, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if form != FORMAT or run != scope.run or HEAD.size + length != len(signed):
        raise Malformed("an announcement of another format, run or length")
    if not is_signed(key, signature, _signed(scope, signed)):
        raise Malformed("an announcement whose signature is wrong")
    news = parse_news(kind, signed[HEAD.size :])
    return Announcement(news, milliseconds, peer_id(key), Statement.parse(statement), data)


def _signed(scope: Scope, body: bytes) -> bytes:
    domain = scope.domain
    return TAG + domain.chain_id.to_bytes(8, "big") + bytes.fromhex(domain.contract[2:]) + body


def encode_news(news: News) -> bytes:
    match news:
        case Heartbeat(endpoint, addresses):
            return b"".join(map(_sized, (endpoint, *map(str, addresses))))
        case NewVersion(version, root):
            return _VERSION.pack(version, root)
        case Held(root, chunks, bitmap):
            return _HELD.pack(root, chunks) + bitmap
        case Offers(commitments):
            return b"".join(commitments)
        case Verdicts(commitment, messages):
            return commitment + messages


def parse_news(kind: int, payload: bytes) -> News:
    """Raises: Malformed: an unknown kind, or not its one encoding."""
    match kind:
        case 1:
            return _heartbeat(payload)
        case 2 if len(payload) == _VERSION.size:
            version, root = _VERSION.unpack(payload)
            return NewVersion(Version(version), Digest(root))
        case 3 if len(payload) >= _HELD.size:
            return _held(payload)
        case 4 if 0 < len(payload) <= 32 * MAX_COMMITMENTS and len(payload) % 32 == 0:
            return Offers(tuple(Digest(payload[at : at + 32]) for at in range(0, len(payload), 32)))
        case 5 if len(payload) > 32:
            return Verdicts(Digest(payload[:32]), payload[32:])
        case _:
            raise Malformed(f"an announcement of kind {kind} with {len(payload)} bytes")


def _heartbeat(payload: bytes) -> Heartbeat:
    texts, at = list[str](), 0
    while at < len(payload):
        length = int.from_bytes(payload[at : at + 2], "big")
        text = payload[at + 2 : at + 2 + length]
        if len(text) != length or len(payload) - at < 2 or not text.isascii() or len(texts) > MAX_ADDRESSES:
            raise Malformed("a heartbeat with a text that is cut off, not ASCII, or one too many")
        texts.append(text.decode())
        at += 2 + length
    if not texts or len(texts[0]) > MAX_URL_BYTES or not (texts[0].isprintable() or not texts[0]):
        raise Malformed("a heartbeat without an endpoint that can be one")
    addresses = tuple(map(parse_multiaddr, texts[1:]))
    if [str(address) for address in addresses] != texts[1:]:
        raise Malformed("a heartbeat with an address in another spelling")
    return Heartbeat(texts[0], addresses)


def _held(payload: bytes) -> Held:
    root, chunks = _HELD.unpack_from(payload)
    bitmap = payload[_HELD.size :]
    if len(bitmap) != -(-chunks // 8) or len(bitmap) > MAX_BITMAP_BYTES:
        raise Malformed(f"a bitmap of {len(bitmap)} bytes for {chunks} chunks")
    if chunks % 8 and bitmap[-1] >> chunks % 8:
        raise Malformed("a bitmap with bits beyond its chunks")
    return Held(Digest(root), chunks, bitmap)


def _sized(text: str) -> bytes:
    data = text.encode("ascii", errors="replace")[: max(MAX_URL_BYTES, MAX_ADDRESS_CHARACTERS)]
    return len(data).to_bytes(2, "big") + data
