"""Who comes in where it is full, and who gives way."""

from functools import partial

import pytest

from node.crowd import Crowd
from node.ip import subscriber


class Door:
    """Notes who had to give way."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd, self.gone = crowd, list[str]()

    def come(self, *whose: str) -> list[bool]:
        """Each of these, "a1" of the owner "a"."""
        return [self.crowd.enter(who[0], who, partial(self.gone.append, who)) for who in whose]


@pytest.mark.parametrize(("newest_goes", "gone"), [(False, ["a1", "a2"]), (True, ["a4", "a3"])])
def test_who_has_most_gives_way_until_all_have_as_much(newest_goes: bool, gone: list[str]) -> None:
    door = Door(Crowd(4, newest_goes=newest_goes))

    assert door.come("a1", "a2", "a3", "a4", "a5") == [True] * 4 + [False]
    assert door.come("b1", "b2", "b3") == [True, True, False]
    assert door.gone == gone
    assert door.come("c1", "a6") == [True, False]
    assert [door.crowd.of(owner) for owner in "abc"] == [1, 2, 1]


def test_who_has_one_less_than_another_takes_nothing_from_it() -> None:
    """Else the other would have one less then, and take it back, and so on for ever."""
    door = Door(Crowd(5))
    assert all(door.come("a1", "a2", "a3", "b1", "b2"))

    assert door.come("b3", "a4", "b3") == [False] * 3
    assert door.gone == []


def test_one_owner_has_no_more_than_its_part_however_much_room_there_is() -> None:
    door = Door(Crowd(100, 2))

    assert door.come("a1", "a2", "a3", "b1") == [True, True, False, True]
    assert door.crowd.has_its_most("a") and not door.crowd.has_its_most("b")


def test_who_leaves_makes_room_once() -> None:
    door = Door(Crowd(2))
    door.come("a1", "a2", "b1")  # for which a1 has gone

    for _ in range(2):
        door.crowd.leave("a", "a1")
    assert len(door.crowd) == 2
    door.crowd.leave("a", "a2")
    assert len(door.crowd) == 1 and door.crowd.of("a") == 0
    assert door.come("b2") == [True]


def test_the_addresses_of_one_subscriber_are_one() -> None:
    crowd = Crowd(100, 2)
    for number in range(3):
        address = subscriber(f"2001:db8:1:2:{number:x}::1")
        assert crowd.enter(address, number, lambda: None) == (number < 2)
    assert crowd.enter(subscriber("2001:db8:1:3::1"), "another", lambda: None)
    assert len(crowd) == 3
