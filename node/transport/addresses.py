"""Whom the limits of a connection are counted for."""

import asyncio

from node.ip import subscriber


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Whom a connection's limits are counted for; nobody where it has gone."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    return subscriber(str(peer[0])) if peer else ""
