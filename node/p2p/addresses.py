"""Names of peers and where they are: peer ids, multiaddresses, and the part of an endpoint that names a libp2p port."""

import re
from dataclasses import dataclass
from typing import Final

from node.errors import Malformed

ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"  # base58btc
# Identity multihash (0x00) of 36 bytes: a protobuf with key type Ed25519 (field 1: 1) and 32 bytes of key (field 2).
# libp2p specification, "Peer Ids and Keys".
ED25519_PREFIX: Final = bytes.fromhex("002408011220")
PEER_ID_BYTES: Final = len(ED25519_PREFIX) + 32
MAX_ADDRESS_CHARACTERS: Final = 256

_PEER = r"12D3Koo[1-9A-HJ-NP-Za-km-z]{45}"  # what every Ed25519 peer id in base58 looks like
_MULTIADDR = re.compile(
    rf"/(?:ip4/(?P<ip4>[0-9.]{{7,15}})|ip6/(?P<ip6>[0-9a-f:]{{2,39}})|dns[46]?/(?P<name>[A-Za-z0-9.-]{{1,253}}))"
    rf"/tcp/(?P<port>[0-9]{{1,5}})/p2p/(?P<peer>{_PEER})"
)
_FRAGMENT = re.compile(rf"p2p=(?P<port>[0-9]{{1,5}})/(?P<peer>{_PEER})")
_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_PARTS = (  # of a multiaddress, loosely: for words on what is wrong with one
    ("", ""),
    ("ip4|ip6|dns[46]?", "ip4, ip6, dns, dns4 or dns6"),
    (r"[A-Za-z0-9.:-]{1,253}", "host"),
    ("tcp", "tcp, the only transport here"),
    (_PORT, "TCP port"),
    ("p2p", "p2p, before the peer id"),
    (_PEER, "Ed25519 peer id: those have 52 characters and begin with 12D3Koo"),
)


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where a peer listens, and who answers there: nobody else can, whatever `host` resolves to."""

    host: str
    port: int
    peer: str

    def __str__(self) -> str:
        kind = "ip6" if ":" in self.host else "ip4" if re.fullmatch("[0-9.]+", self.host) else "dns"
        return f"/{kind}/{self.host}/tcp/{self.port}/p2p/{self.peer}"


def peer_id(public_key: bytes) -> str:
    """The libp2p peer id of an Ed25519 public key, in base58."""
    return _base58(ED25519_PREFIX + public_key)


def peer_id_bytes(peer: str) -> bytes:
    """A peer id's bytes, which statements sign. Raises: Malformed: not an Ed25519 peer id in its one spelling."""
    if re.fullmatch(_PEER, peer) is None:
        raise Malformed(f"not an Ed25519 peer id: {peer[:60]!a}")
    number = 0
    for letter in peer:
        number = number * 58 + ALPHABET.index(letter)
    zeros = len(peer) - len(peer.lstrip("1"))
    data = bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) != PEER_ID_BYTES or not data.startswith(ED25519_PREFIX):
        raise Malformed(f"not an Ed25519 peer id: {peer[:60]!a}")
    return data


def _base58(data: bytes) -> str:
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = ALPHABET[digit] + digits
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + digits


def parse_multiaddr(text: str) -> PeerAddress:
    """`/ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT/p2p/PEER`. Raises: Malformed."""
    found = _MULTIADDR.fullmatch(text) if len(text) <= MAX_ADDRESS_CHARACTERS else None
    if found is None:
        raise Malformed(f"not /ip4/HOST/tcp/PORT/p2p/12D3Koo...: {text[:MAX_ADDRESS_CHARACTERS]!a}{_wrong_parts(text)}")
    host = found["ip4"] or found["ip6"] or found["name"]
    return _address(host, found["port"], found["peer"])


def _wrong_parts(text: str) -> str:
    """Which parts of what should be a multiaddress are none, for the message; nothing where it has others."""
    parts = text[:MAX_ADDRESS_CHARACTERS].split("/")
    if len(parts) != len(_PARTS) or parts[0]:
        return ""
    pairs = zip(parts, _PARTS, strict=True)
    wrong = [f"{part!a} is no {what}" for part, (pattern, what) in pairs if re.fullmatch(pattern, part) is None]
    return f" ({'; '.join(wrong) or f'{parts[2]!a} is no {parts[1]} address'})"


def split_endpoint(url: str) -> tuple[str, PeerAddress | None]:
    """An endpoint from the chain without its fragment, and the libp2p address that the fragment adds to its host.

    `http://1.2.3.4:8000#p2p=4001/12D3Koo...`: HTTP clients never send a fragment. One that is not so is as none.
    """
    base, hash_sign, fragment = url.partition("#")
    found = _FRAGMENT.fullmatch(fragment) if hash_sign else None
    host = _host(base)
    if found is None or host is None:
        return base, None
    try:
        return base, _address(host, found["port"], found["peer"])
    except Malformed:
        return base, None


def with_fragment(url: str, port: int, peer: str) -> str:
    return f"{url}#p2p={port}/{peer}"


def _host(url: str) -> str | None:
    """Of an http(s) URL without a user; whether it may be reached is found out where the socket is made."""
    found = re.match(r"https?://(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.-]{1,253}))(?=[:/]|$)", url)
    return None if found is None else (found[1] or found[2]).lower()


def _address(host: str, port: str, peer: str) -> PeerAddress:
    peer_id_bytes(peer)
    if not 0 < int(port) < 1 << 16:
        raise Malformed(f"no TCP port: {port}")
    return PeerAddress(host, int(port), peer)
