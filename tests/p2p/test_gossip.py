"""Announcements on their way from peer to peer."""

import asyncio
import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from ledger.base import Digest, Version
from node.errors import Malformed, NotFound
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.announcements import Announcement, NewVersion, Offers, announce
from node.p2p.gossip import (
    FANOUT,
    MAX_BATCH,
    MAX_BATCH_BYTES,
    MAX_INVALID,
    MAX_WAITING,
    ORIGIN_BURST,
    OWN_FANOUT,
    SENDER_BURST,
    Gossip,
    sized,
    split,
)
from node.p2p.identity import Identities, make_statement
from node.p2p.keys import public_key_of
from node.p2p.limits import MAX_BODY_BYTES
from node.p2p.seen import MAX_AGE_SECONDS
from tests.p2p.parts import BLOCK_TIME, SCOPE, STAKING, account, secret, town, until

NOW = 1_800_000_000.0
SENDER, OTHER = "a peer", "another peer"
BY = "a node"


class SleepClock:
    """By which time passes only where somebody sleeps, for as long as that takes."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.now += seconds


@dataclass
class Recorder:
    """A link that notes what is asked, and answers while it is open."""

    open: bool = True
    sent: list[tuple[str, list[bytes]]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    @property
    def address(self) -> PeerAddress | None:
        return None

    async def dial(self, address: PeerAddress) -> None:
        raise NotFound("nobody")

    async def ask(
        self, peer: str, protocol: str, body: bytes, limit: int = MAX_BODY_BYTES, seconds: float = 1.0
    ) -> bytes:
        await asyncio.sleep(0)
        if not self.open:
            raise NotFound("closed")
        self.sent.append((peer, list(split(body))))
        return b""

    def admit(self, peer: str, node: str) -> None:
        return None

    def drop(self, peer: str) -> None:
        self.dropped.append(peer)

    def messages(self, peer: str) -> list[bytes]:
        return [message for to, batch in self.sent for message in batch if to == peer]


def gossip(link: Recorder, heard: list[Announcement] | None = None, now: float = NOW) -> Gossip:
    members = {account(number).address for number in range(1, 9)}
    identities = Identities(STAKING, members.__contains__, lambda: BLOCK_TIME)
    hear = (heard if heard is not None else []).append
    return Gossip(
        link=link,
        scope=SCOPE,
        identities=identities,
        hear=hear,
        clock=SleepClock(),
        wall=lambda: now,
        rng=random.Random(1),
    )


def said(number: int, version: int = 0, at: float = NOW) -> bytes:
    peer = peer_id(public_key_of(secret(number)))
    statement = make_statement(account(number), STAKING, peer, BLOCK_TIME)
    news = NewVersion(Version(version), Digest(bytes(32)))
    return announce(news, SCOPE, secret(number), statement, int(at * 1000))


async def test_a_message_is_heard_once_and_passed_on_to_others_only() -> None:
    link, heard = Recorder(), list[Announcement]()
    node = gossip(link, heard)
    node.add(SENDER, BY)
    node.add(OTHER, "another node")

    node.received(SENDER, sized(said(1)))
    node.received(OTHER, sized(said(1)))
    await until(lambda: bool(link.messages(OTHER)))

    assert [message.news for message in heard] == [NewVersion(Version(0), Digest(bytes(32)))]
    assert (link.messages(OTHER), link.messages(SENDER)) == ([said(1)], [])
    node.close()


async def test_an_own_message_that_comes_back_is_not_heard() -> None:
    heard = list[Announcement]()
    node = gossip(Recorder(), heard)
    node.add(SENDER, BY)

    node.publish(said(1))
    node.received(SENDER, sized(said(1)))

    assert (heard, node.counts.repeated) == ([], 1)
    node.close()


@pytest.mark.parametrize("late", [MAX_AGE_SECONDS + 1, -MAX_AGE_SECONDS - 1])
async def test_a_message_of_another_time_is_not_heard(late: float) -> None:
    """What was recorded cannot be said again later, when it is no longer remembered."""
    heard = list[Announcement]()
    node = gossip(Recorder(), heard)
    node.add(SENDER, BY)

    node.received(SENDER, sized(said(1, at=NOW - late)))

    assert (heard, node.counts.strange) == ([], 1)
    node.close()


async def test_a_stranger_is_not_heard_and_who_passed_it_on_is_not_blamed() -> None:
    link, heard = Recorder(), list[Announcement]()
    node = gossip(link, heard)
    node.add(SENDER, BY)

    for version in range(int(MAX_INVALID) + 5):
        node.received(SENDER, sized(said(99, version)))

    assert (heard, node.counts.strange, link.dropped) == ([], MAX_INVALID + 5, [])
    node.close()


async def test_a_peer_that_makes_messages_up_is_left() -> None:
    link = Recorder()
    node = gossip(link)
    node.add(SENDER, BY)
    forged = said(1)[:-1] + b"\0"

    with pytest.raises(Malformed):
        for _ in range(int(MAX_INVALID) + 1):
            node.received(SENDER, sized(forged))

    assert link.dropped == [SENDER]
    node.close()


async def test_one_node_announces_only_so_much_and_does_not_silence_another() -> None:
    heard = list[Announcement]()
    node = gossip(Recorder(), heard)
    node.add(SENDER, BY)

    for version in range(int(ORIGIN_BURST) + 50):
        node.received(SENDER, sized(said(1, version)))
    node.received(SENDER, sized(said(2)))

    assert ORIGIN_BURST <= len(heard) - 1 < ORIGIN_BURST + 50
    assert heard[-1].statement.node == account(2).address
    node.close()


async def test_a_message_goes_to_some_of_many_peers_an_own_one_to_more() -> None:
    link = Recorder()
    node = gossip(link)
    for number in range(40):
        node.add(f"peer {number}", f"node {number}")

    node.publish(b"mine")
    node.received("peer 0", sized(said(1)))
    await until(lambda: sum(len(batch) for _, batch in link.sent) == OWN_FANOUT + FANOUT)

    own, passed_on = ({peer for peer, batch in link.sent if data in batch} for data in (b"mine", said(1)))
    assert (len(own), len(passed_on), "peer 0" in passed_on) == (OWN_FANOUT, FANOUT, False)
    node.close()


async def test_of_what_a_slow_peer_does_not_take_the_oldest_goes_first() -> None:
    link = Recorder()
    node = gossip(link)
    node.add(SENDER, BY)
    many = [b"%d" % number for number in range(MAX_WAITING + 10)]

    for data in many:  # at once: nothing is sent before the test waits
        node.publish(data)
    await until(lambda: len(link.messages(SENDER)) == MAX_WAITING)

    assert link.messages(SENDER) == many[10:]
    assert node.counts.dropped == 10
    node.close()


async def test_a_peer_that_takes_nothing_is_left_after_three_tries() -> None:
    link = Recorder(open=False)
    node = gossip(link)
    node.add(SENDER, BY)

    for version in range(3):
        node.publish(said(1, version))
    await until(lambda: bool(link.dropped))

    assert (link.dropped, node.counts.dropped) == ([SENDER], 3)
    node.close()


async def test_what_a_peer_did_not_take_is_sent_again_in_its_order() -> None:
    link = Recorder(open=False)
    node = gossip(link)
    node.add(SENDER, BY)
    node.publish(b"first")
    await until(lambda: node.neighbours[SENDER].failures == 1)

    node.publish(b"second")
    link.open = True
    await until(lambda: len(link.messages(SENDER)) == 2)

    assert link.messages(SENDER) == [b"first", b"second"]
    assert (node.neighbours[SENDER].failures, node.counts.dropped) == (0, 0)
    node.close()


async def test_a_batch_holds_what_a_request_may_have() -> None:
    link = Recorder()
    node = gossip(link)
    node.add(SENDER, BY)
    large = [bytes([number]) * 60_000 for number in range(20)]

    for data in large:
        node.publish(data)
    await until(lambda: len(link.messages(SENDER)) == 20)

    assert link.messages(SENDER) == large
    assert max(sum(map(len, batch)) for _, batch in link.sent) <= MAX_BATCH_BYTES < MAX_BODY_BYTES
    node.close()


async def test_who_connects_again_under_another_peer_id_has_what_was_left() -> None:
    node = gossip(Recorder())
    repeated = sized(said(1)) * 50

    for number in range(22):  # connections, of 50 messages each: 1,100, and 1,000 are taken
        node.add(f"peer {number}", BY)
        node.received(f"peer {number}", repeated)
        node.remove(f"peer {number}")

    assert (node.counts.repeated, node.counts.throttled) == (SENDER_BURST - 1, 100)


async def test_a_node_whose_peer_made_messages_up_is_left_at_once_when_it_is_back() -> None:
    link = Recorder()
    node = gossip(link)
    forged = sized(said(1)[:-1] + b"\0")
    node.add(SENDER, BY)
    with pytest.raises(Malformed):
        node.received(SENDER, forged * (int(MAX_INVALID) + 1))
    node.remove(SENDER)

    node.add("its next peer", BY)
    with pytest.raises(Malformed):
        node.received("its next peer", forged)

    assert link.dropped == [SENDER, "its next peer"]
    node.close()


@pytest.mark.parametrize(
    "body", [b"\0", b"\0\0\0\1", b"\0\1\0\0" + bytes(65536), b"\0\0\0\0" * (MAX_BATCH + 1), sized(b"x") + b"\0\0"]
)
async def test_a_batch_that_is_none_is_refused_whole(body: bytes) -> None:
    heard = list[Announcement]()
    node = gossip(Recorder(), heard)
    node.add(SENDER, BY)

    with pytest.raises(Malformed):
        node.received(SENDER, sized(said(1)) + body)

    assert not heard
    node.close()


async def test_a_burst_of_100_messages_reaches_every_node_of_a_line() -> None:
    """Ten nodes, each knowing its neighbours only."""
    async with town() as place:
        nodes = [await place.node(number) for number in range(1, 11)]
        for left, right in pairwise(nodes):
            await left.link.dial(place.address(right))
        await until(lambda: all(len(node.owners) >= 1 + (0 < i < 9) for i, node in enumerate(nodes)))

        for number in range(100):
            nodes[0].announce(Offers((Digest(bytes([number]) * 32),)))
        await until(lambda: all(len(node.book.offers) == 100 for node in nodes[1:]))

        assert sum(node.gossip.counts.dropped + node.gossip.counts.throttled for node in nodes) == 0
        assert max(node.gossip.counts.heard for node in nodes[1:]) < 120  # the same is heard once, whatever its ways
