"""What all connections together, and those of one address or node, may take of the libp2p process."""

import json
import subprocess
import sys
from typing import Any

import pytest

from node.p2p.limits import HANDSHAKES_BURST, HANDSHAKES_PER_SECOND, REQUESTS_BURST, REQUESTS_PER_SECOND
from node.p2p.messages import ANSWERED, BUSY


@pytest.fixture(scope="module")
def scenes() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "tests.p2p.switching"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_one_address_shakes_hands_only_so_often(scenes: dict[str, Any]) -> None:
    found = scenes["knocking"]

    assert HANDSHAKES_BURST <= found["taken"] <= HANDSHAKES_BURST + HANDSHAKES_PER_SECOND * found["seconds"] + 1


def test_a_few_addresses_do_not_keep_everybody_else_out(scenes: dict[str, Any]) -> None:
    """Sixteen places each of four addresses are all there are: one of these gives way."""
    assert scenes["crowding"] == {"taken": 64, "seventeenth": False, "fifth": True, "unknown": 64}


def test_addresses_that_have_about_as_many_places_do_not_take_them_from_each_other(scenes: dict[str, Any]) -> None:
    """Whoever had 15 cut one of another's 16 handshakes, which then had 15, and so on."""
    found = scenes["competing"]

    assert found == {"taken": 64, "more": [False] * 3, "had": [16, 16, 16, 15, 1], "open": 64}


def test_a_peer_that_is_said_to_be_there_can_be_asked(scenes: dict[str, Any]) -> None:
    """It was said before its streams were there: introductions failed, and a peer was left in peace for seconds."""
    assert scenes["hasty"] == [ANSWERED]


def test_who_is_told_late_is_told_that_a_connection_is_over(scenes: dict[str, Any]) -> None:
    assert scenes["listening_late"] == ["Opened", "Closed"]


def test_a_request_for_which_there_is_no_memory_fails_alone(scenes: dict[str, Any]) -> None:
    assert scenes["overflowing"] == [None, ANSWERED]


def test_answers_that_nobody_takes_make_room_for_one_that_is_read(scenes: dict[str, Any]) -> None:
    """Each would be held for thirty seconds, a MiB, of as many as there are streams."""
    found = scenes["hoarding"]

    assert found == {"status": ANSWERED, "whole": True, "first_gone": True, "given_up": True}


def test_a_bug_of_ours_is_not_taken_for_a_bad_peer(scenes: dict[str, Any]) -> None:
    assert scenes["stumbling"][-1:] == ["TypeError"]


def test_whatever_bytes_a_peer_sends_others_are_answered(scenes: dict[str, Any]) -> None:
    assert scenes["garbling"] == [ANSWERED]


def test_a_node_that_comes_again_as_another_peer_may_ask_what_was_left(scenes: dict[str, Any]) -> None:
    found = scenes["coming_again"]

    assert REQUESTS_BURST <= found["answered"] <= REQUESTS_BURST + REQUESTS_PER_SECOND * found["seconds"] + 1
    assert found["one_bucket_of_frames"]


def test_a_peer_may_say_four_times_who_it_is(scenes: dict[str, Any]) -> None:
    assert scenes["introducing"] == [ANSWERED] * 4 + [BUSY] * 2


def test_frames_of_who_is_not_identified_are_read_slowly(scenes: dict[str, Any]) -> None:
    """250 and more, a burst of 200 and 50 a second."""
    assert scenes["pinging"] >= 1.0
