"""How long what could not be done rests."""

from ledger.base import Digest
from node.roles.pauses import Pauses
from tests.clocks import HandClock

ABOUT, OTHER = Digest(b"\x01" * 32), Digest(b"\x02" * 32)


def test_a_submission_rests_twice_as_long_each_time_up_to_a_minute_and_starts_anew_when_it_went_well() -> None:
    clock = HandClock()
    pauses = Pauses(clock)
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        pauses.note(ABOUT, done=False)
        clock.now += seconds - 0.5
        assert pauses.rests(ABOUT) and not pauses.rests(OTHER)
        clock.now += 0.5
        assert not pauses.rests(ABOUT)

    pauses.note(ABOUT, done=True)
    assert pauses.resting == {}
    pauses.note(ABOUT, done=False)
    clock.now += 1
    assert not pauses.rests(ABOUT)
    pauses.forget(ABOUT)
    assert pauses.resting == {}
