"""Whom a node dials, and when again."""

import random
from dataclasses import dataclass, field

import pytest

from node.p2p.addresses import PeerAddress
from node.p2p.link import Wire
from node.p2p.seeking import ENOUGH, FIRST_PAUSE_SECONDS, Seeker


@dataclass
class Scene:
    """A seeker on a wire on which nobody else is."""

    now: float = 0.0
    connected: set[str] = field(default_factory=set)
    bootstrap: list[PeerAddress] = field(default_factory=list)
    others: list[PeerAddress] = field(default_factory=list)
    seeker: Seeker = field(init=False)

    def __post_init__(self) -> None:
        self.seeker = Seeker(
            link=Wire().link("me"),
            me="me",
            connected=lambda: self.connected,
            bootstrap=lambda: self.bootstrap,
            others=lambda: self.others,
            now=lambda: self.now,
            rng=random.Random(1),
        )

    async def look(self) -> list[PeerAddress]:
        chosen = self.seeker.chosen()
        for address in chosen:
            await self.seeker._dial(address)
        return chosen


def door(number: int, peer: str) -> PeerAddress:
    return PeerAddress(f"203.0.113.{number}", 4001, peer)


async def test_a_peer_that_says_it_is_somewhere_else_is_not_dialled_sooner() -> None:
    scene = Scene()
    dialled = list[PeerAddress]()

    for number in range(50):  # seconds, each with another address of the same peer
        scene.now, scene.others = float(number), [door(number, "a wanderer")]
        dialled += await scene.look()

    # At once, after 4 to 6 s, 8 to 12 s more, 16 to 24 s more.
    assert 3 <= len(dialled) <= 4


async def test_of_several_addresses_of_a_peer_one_is_dialled_at_a_time_and_each_now_and_then() -> None:
    scene = Scene(others=[door(1, "a peer"), door(2, "a peer")])
    dialled = list[PeerAddress]()

    for number in range(10):
        scene.now = 400.0 * number
        chosen = await scene.look()
        assert len(chosen) == 1
        dialled += chosen

    assert set(dialled) == {door(1, "a peer"), door(2, "a peer")}


async def test_a_peer_that_is_identified_and_leaves_is_not_dialled_at_once() -> None:
    scene = Scene(others=[door(1, "a peer")])
    await scene.look()

    scene.seeker.succeeded("a peer")
    scene.now = 3.9
    assert await scene.look() == []
    scene.now = 1.2 * FIRST_PAUSE_SECONDS
    assert await scene.look() == [door(1, "a peer")]


async def test_a_peer_that_was_down_for_long_and_is_identified_is_dialled_again_soon() -> None:
    scene = Scene(others=[door(1, "a peer")])
    for _ in range(8):
        scene.now += 400.0
        await scene.look()

    scene.seeker.succeeded("a peer")
    scene.now += FIRST_PAUSE_SECONDS

    assert await scene.look() == [door(1, "a peer")]


@pytest.mark.parametrize(("connected", "wanted"), [(0, 1), (ENOUGH, 1), (128, 1)])
async def test_bootstrap_peers_are_dialled_however_many_others_are_connected(connected: int, wanted: int) -> None:
    scene = Scene(connected={f"peer {n}" for n in range(connected)}, bootstrap=[door(1, "the trainer's")])

    assert len(await scene.look()) == wanted
