"""Whom a node dials, and when again."""

import random
from dataclasses import dataclass, field

import pytest

from node.p2p.addresses import PeerAddress
from node.p2p.link import Wire
from node.p2p.seeking import ENOUGH, FIRST_PAUSE_SECONDS, Seeker
from tests.clocks import HandClock


@dataclass
class Scene:
    """A seeker on a wire on which nobody else is."""

    clock: HandClock = field(default_factory=HandClock)
    connected: set[str] = field(default_factory=set)
    bootstrap: list[PeerAddress] = field(default_factory=list)
    others: list[PeerAddress] = field(default_factory=list)
    failures: list[tuple[PeerAddress, str]] = field(default_factory=list)
    seeker: Seeker = field(init=False)

    def __post_init__(self) -> None:
        self.seeker = Seeker(
            link=Wire().link("me"),
            me="me",
            known=self.connected,
            bootstrap=lambda: self.bootstrap,
            others=lambda: self.others,
            failed=lambda address, error: self.failures.append((address, str(error))),
            clock=self.clock,
            rng=random.Random(1),
        )

    async def look(self) -> list[PeerAddress]:
        chosen = self.seeker.chosen()
        for address in chosen:
            await self.seeker.dial(address)
        return chosen


def door(number: int, peer: str) -> PeerAddress:
    return PeerAddress(f"203.0.113.{number}", 4001, peer)


async def test_a_peer_that_says_it_is_somewhere_else_is_not_dialled_sooner() -> None:
    scene = Scene()
    dialled = list[PeerAddress]()

    for number in range(50):  # seconds, each with another address of the same peer
        scene.others = [door(number, "a wanderer")]
        dialled += await scene.look()
        scene.clock.now += 1

    # At once, after 4 to 6 s, 8 to 12 s more, 16 to 24 s more.
    assert 3 <= len(dialled) <= 4


async def test_of_several_addresses_of_a_peer_one_is_dialled_at_a_time_and_each_now_and_then() -> None:
    scene = Scene(others=[door(1, "a peer"), door(2, "a peer")])
    dialled = list[PeerAddress]()

    for _ in range(10):
        chosen = await scene.look()
        assert len(chosen) == 1
        dialled += chosen
        scene.clock.now += 400.0

    assert set(dialled) == {door(1, "a peer"), door(2, "a peer")}


async def test_a_peer_that_is_identified_and_leaves_is_not_dialled_at_once() -> None:
    scene = Scene(others=[door(1, "a peer")])
    await scene.look()

    scene.seeker.succeeded("a peer")
    scene.clock.now += 3.9
    assert await scene.look() == []
    scene.clock.now += 1.2 * FIRST_PAUSE_SECONDS - 3.9
    assert await scene.look() == [door(1, "a peer")]


async def test_a_peer_that_was_down_for_long_and_is_identified_is_dialled_again_soon() -> None:
    scene = Scene(others=[door(1, "a peer")])
    for _ in range(8):
        scene.clock.now += 400.0
        await scene.look()

    scene.seeker.succeeded("a peer")
    scene.clock.now += FIRST_PAUSE_SECONDS

    assert await scene.look() == [door(1, "a peer")]


@pytest.mark.parametrize("connected", [0, ENOUGH, 128])
async def test_bootstrap_peers_are_dialled_however_many_others_are_connected(connected: int) -> None:
    scene = Scene(connected={f"peer {n}" for n in range(connected)}, bootstrap=[door(1, "the trainer's")])

    assert await scene.look() == [door(1, "the trainer's")]
