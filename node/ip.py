"""Network addresses: which ones a stranger may lead to, the public internet and nothing nearer; who counts as one."""

import ipaddress
from functools import lru_cache

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1


def is_public(address: str) -> bool:
    """Whether the literal `address` is a unicast one of the public internet.

    IPv4 inside IPv6 (mapped, NAT64, 6to4) counts as the IPv4 address that it reaches. What does not parse is no
    public address.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = _ipv4_inside(parsed)
        if inner is None:
            return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved or parsed.is_site_local)
        parsed = inner
    return parsed.is_global and not parsed.is_multicast


def is_literal(host: str) -> bool:
    """Whether `host` is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def subscriber(address: str) -> str:
    """Whom limits are counted for: one IPv4 address, or the /64 that one IPv6 subscriber holds at least (RFC 6177)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))


def _ipv4_inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
