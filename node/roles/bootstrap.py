"""Where a role's libp2p begins, and whom it takes for what: the chain's record says both, never a peer."""

import random
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from eth_account.signers.local import LocalAccount

from ledger.base import MAX_URL_BYTES, Address
from ledger.messages import Domain
from node.p2p.addresses import PeerAddress, parse_multiaddr, split_endpoint, with_fragment
from node.p2p.announcements import Scope
from node.p2p.myself import Chain, Myself
from node.p2p.network import Network
from node.p2p.sidecar import Sidecar
from node.peers.server import Mailbox
from node.record import Record
from node.roles.directory import belongs, core, keeps, staked, url_of
from node.roles.member import Member
from node.roles.pieces import HeldPieces

STAKED_TRIED: Final = 32  # nodes with stake whose addresses are looked at, of however many there are


def network_of(member: Member, mailbox: Mailbox | None, key: LocalAccount, sidecar: Sidecar, url: str) -> Network:
    """The peers of `member` as seen from `url`, where others reach it by HTTP: `sidecar` is to run with it. They are
    given the files of `mailbox`.

    Raises: Malformed: the user named a peer that is none.
    """
    named = tuple(map(parse_multiaddr, member.settings.libp2p.peers))
    rng = random.Random()
    myself = Myself(
        account=key,
        secret=sidecar.listening.secret,
        endpoint=url,
        host=urlsplit(url).hostname or None,
        bootstrap=named,
    )
    return Network(
        link=sidecar,
        myself=myself,
        scope=Scope(member.domain, member.run.id),
        staking=Domain(member.ledger.chain_id, member.ledger.staking),
        chain=_chain(member.record, rng),
        pieces=HeldPieces(member, mailbox),
        clock=member.clock,
        session=member.peers.session,
        heard=member.told_of,
        bans=member.bans,
        rng=rng,
    )


def _chain(record: Record, rng: random.Random) -> Chain:
    return Chain(
        belongs=lambda who: belongs(record, who),
        endpoint_of=lambda who: url_of(record, who),
        core=lambda: _addresses(record, core(record)),
        nodes=lambda: _addresses(record, _some(list(staked(record)), rng)),
        is_open=lambda commitment: commitment in record.unfinished,
        keeps=lambda commitment, who: keeps(record, commitment, who),
        time=lambda: record.head.time,
    )


def _some(nodes: list[Address], rng: random.Random) -> list[Address]:
    return rng.sample(nodes, min(STAKED_TRIED, len(nodes)))


def _addresses(record: Record, nodes: "list[Address]") -> Iterator[PeerAddress]:
    """Where `nodes` announced on chain that their libp2p listens."""
    for who in nodes:
        _, address = split_endpoint(record.endpoints.get(who, ""))
        if address is not None:
            yield address


def announced(url: str, address: PeerAddress) -> str:
    """What goes on chain; without libp2p's part where that is too long for it, or nobody can connect."""
    whole = with_fragment(url, address.port, address.peer)
    return whole if url and len(whole.encode()) <= MAX_URL_BYTES else url
