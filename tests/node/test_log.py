"""Lines for people and for machines, which nobody else can forge."""

import json
import logging
from collections.abc import Iterator

import pytest

from node.log import LOGGER, MAX_CHARACTERS, configure, event, warn


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    handlers, level, propagate = LOGGER.handlers, LOGGER.level, LOGGER.propagate
    yield
    LOGGER.handlers, LOGGER.propagate = handlers, propagate
    LOGGER.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_has_time_role_event_and_fields_with_digests_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=False)
    event("submitted", slot=3, commitment=b"\xab" * 32, rate=1.23456789, node="0x" + "1" * 40)
    warn("late", reason=ValueError("why"))

    first, second = lines(capsys)
    assert first[8:] == f" worker     submitted slot=3 commitment=0xabababab… rate=1.2346 node={'0x' + '1' * 40}"
    assert second[8:] == " worker     ! late reason=why"


def test_a_machine_gets_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("relay", json_lines=True)
    event("serving", url="http://a", root=b"\x01\x02")

    (line,) = lines(capsys)
    read = json.loads(line)
    assert read.pop("time").endswith("+00:00")
    assert read == {"role": "relay", "level": "info", "event": "serving", "url": "http://a", "root": "0x0102"}


def test_what_a_peer_wrote_neither_forges_a_line_nor_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=False)
    warn("refused", reason="no\n12:00:00 worker     claimed amount=1\x1b[2J\x07 \u202eevil é")

    (line,) = lines(capsys)
    assert line.endswith("reason=no\\n12:00:00 worker     claimed amount=1\\x1b[2J\\x07 \\u202eevil é")


def test_a_bug_is_shown_with_where_it_happened(capsys: pytest.CaptureFixture[str]) -> None:
    for json_lines in (False, True):
        configure("worker", json_lines=json_lines)
        try:
            raise ZeroDivisionError("hostile\n12:00:00 worker     claimed")
        except ZeroDivisionError:
            LOGGER.exception("a bug\x1b[2J")
        shown = lines(capsys)
        if json_lines:
            assert json.loads(shown[0])["traceback"].startswith("Traceback (most recent call last):")
        else:
            assert shown[0].endswith("! a bug\\x1b[2J")
            assert all(line.startswith("  ") for line in shown[1:])
            assert "ZeroDivisionError: hostile" in shown[-2]


def test_a_long_text_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    configure("worker", json_lines=True)
    warn("refused", reason="x" * 10_000)

    assert json.loads(lines(capsys)[0])["reason"] == "x" * MAX_CHARACTERS + "…"


def test_nothing_goes_to_the_root_logger_once_configured() -> None:
    configure("worker", json_lines=False)
    assert not LOGGER.propagate and LOGGER.level == logging.INFO
