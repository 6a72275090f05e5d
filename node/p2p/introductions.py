"""Peers become known: both sides say who they are, and the chain's record says whether they belong."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ledger.base import Address
from ledger.messages import Domain
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress
from node.p2p.identity import STATEMENT_BYTES, VALID_SECONDS, Identities, Statement, make_statement
from node.p2p.limits import CORE_PEERS, MAX_PEERS
from node.p2p.link import Link
from node.p2p.myself import Myself
from node.p2p.protocols import IDENTITY

MAX_PEERS_PER_NODE: Final = 2  # that say they are the same node: one that was restarted may still be connected
INTRODUCTION_SECONDS: Final = 10.0

Met = Callable[[str], None]


@dataclass(slots=True)
class Introductions:
    """Of one node; `owners`: whose each known peer is. `met` hears of each that this side dialled."""

    link: Link
    myself: Myself
    staking: Domain
    identities: Identities
    owners: dict[str, Address]
    bootstrap: Callable[[], Iterable[PeerAddress]]  # for these there are places of their own
    admitted: Met  # somebody is known now, whoever dialled
    met: Met
    _statement: Statement | None = None
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def begin(self, peer: str) -> None:
        """This side has dialled `peer`, and says first who it is."""
        task = asyncio.create_task(self._introduce(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _introduce(self, peer: str) -> None:
        try:
            own = self.statement().encode()
            answer = await self.link.ask(peer, IDENTITY, own, limit=STATEMENT_BYTES, seconds=INTRODUCTION_SECONDS)
            self._admit(peer, Statement.parse(answer))
        except (NotFound, Malformed):
            self.link.drop(peer)
        else:
            self.met(peer)

    def answer(self, peer: str, body: bytes) -> bytes:
        """To a peer that says who it is. Raises: Malformed: it is nobody of this run, or there is no room."""
        self._admit(peer, Statement.parse(body))
        return self.statement().encode()

    def _admit(self, peer: str, statement: Statement) -> None:
        """Raises: Malformed."""
        node = self.identities.require(peer, statement)
        if peer not in self.owners:
            same = sum(owner == node for owner in self.owners.values())
            core = any(address.peer == peer for address in self.bootstrap())
            places = MAX_PEERS if core else MAX_PEERS - CORE_PEERS
            if len(self.owners) >= places or same >= MAX_PEERS_PER_NODE:
                raise Malformed("no room for another peer")
            self.owners[peer] = node
        self.link.admit(peer, node)
        self.admitted(peer)

    def statement(self) -> Statement:
        """This node's own, which is made anew before it ends."""
        now = self.identities.now()
        if self._statement is None or self._statement.deadline < now + VALID_SECONDS // 2:
            self._statement = make_statement(self.myself.account, self.staking, self.myself.peer, now)
        return self._statement
