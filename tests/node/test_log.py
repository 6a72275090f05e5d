"""Lines for people and for machines, which nobody else can forge."""

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.log import LOGGER, MAX_CHARACTERS, complain, configure, event, warn
from tests import loggers


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with loggers.restored():
        yield


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


def test_people_get_units_where_machines_get_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    fields: dict[str, object] = {
        "bytes": 269_100_000, "bytes_s": 1_234.0, "seconds": 0.1234, "seconds_left": 75.4, "tokens_s": 1818.963,
        "pay": 5_078_911 * 10**12, "gas": 5 * 10**16, "skipped": None, "versions": [0, 1], "roots": [b"\xab" * 32],
    }  # fmt: skip
    configure("worker", json_lines=False)
    event("all", **fields)
    configure("worker", json_lines=True)
    event("all", **fields)

    people, machine = lines(capsys)
    assert people[8:] == (
        " worker     all bytes=269.1 MB bytes_s=1.2 kB/s seconds=0.12 s seconds_left=75 s tokens_s=1,819 pay=5.078911"
        " tSTAKE gas=0.0500 ETH versions=0,1 roots=0xabababab…"
    )
    read = json.loads(machine)
    assert (read["bytes"], read["seconds"], read["seconds_left"]) == (269_100_000, 0.1234, 75.4)
    assert (read["pay"], read["gas"]) == ("5078911000000000000", "50000000000000000")  # over 2^53: text
    assert (read["skipped"], read["versions"], read["roots"]) == (None, [0, 1], ["0x" + "ab" * 32])


def test_every_line_is_json_even_where_a_figure_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    configure("trainer", json_lines=True)
    event("step", loss=float("nan"), grad_norm=float("inf"), late=True, limit=2**53 - 1, over=-(2**53))

    read = json.loads(lines(capsys)[0], parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (read["loss"], read["grad_norm"], read["late"]) == ("nan", "inf", True)
    assert (read["limit"], read["over"]) == (9007199254740991, "-9007199254740992")


def test_the_error_that_ends_a_command_fits_the_lines_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    configure(None, json_lines=False)
    event("run created", run=3)
    complain(ValueError("no gas"))
    configure("worker", json_lines=True)
    complain(ValueError("no gas"))

    first, second, third = lines(capsys)
    assert (first, second) == ("run created run=3", "error: no gas")
    read = json.loads(third)
    assert (read["level"], read["event"], read["reason"], read["kind"]) == ("error", "error", "no gas", "ValueError")


@given(st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_logged_stays_one_line_of_json(
    capsys: pytest.CaptureFixture[str], fields: dict[str, object]
) -> None:
    configure("worker", json_lines=True)
    event("anything", **fields | {"event": "forged", "role": "forged"})

    (line,) = capsys.readouterr().err.splitlines()
    read = json.loads(line)
    assert set(read) >= set(fields)
    assert (read["event"], read["role"]) == ("anything", "worker")
