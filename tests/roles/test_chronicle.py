"""What the log says of the chain: each event once, to whom it concerns; a chain that is lost, and back."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.base import (
    Address,
    Block,
    CheckpointPublished,
    Digest,
    Event,
    Expired,
    RelaySet,
    Reported,
    Run,
    RunEnded,
    RunId,
    RunParams,
    Settled,
    SlashExecuted,
    Submitted,
    Version,
    Voided,
    Windows,
)
from ledger.errors import Unreachable
from node.log import configure
from node.record import Record
from node.roles.chronicle import Chronicle
from tests import loggers
from tests.clocks import HandClock
from tests.roles.network import Build
from tests.roles.stage import until

WORKER, OTHER, VALIDATOR, TRAINER, RELAY = (Address("0x" + f"{number:02x}" * 20) for number in range(1, 6))
WINDOWS = Windows(available=6, audit=10, settle_by=100, confirm=20, contest=8, panel=0, grace=30)
PARAMS = RunParams(TRAINER, (VALIDATOR,), 1, 1, 1, 0, 1, 100, 2, 2, 0, 0, WINDOWS)
RUN, AT, ZERO = RunId(1), Block(7, 70), Digest(bytes(32))
MINE, THEIRS = Digest(b"\x01" * 32), Digest(b"\x02" * 32)

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What was logged since it was last asked, without time, role and level."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)

    def read() -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
        return [{key: value for key, value in row.items() if key not in {"time", "role"}} for row in rows]

    with loggers.restored():
        configure("any", json_lines=True)
        yield read


def submitted(node: Address, commitment: Digest, slot: int) -> Submitted:
    return Submitted(AT, RUN, commitment, node, Version(2), slot, ZERO, 5, ZERO)


def told(account: Address, *news: Event) -> Chronicle:
    """A chronicle that has begun, and is then told `news` about two known submissions."""
    record = Record(Run(RUN, TRAINER, PARAMS, b"", ZERO, 0), head=AT)
    for made in (submitted(WORKER, MINE, 3), submitted(OTHER, THEIRS, 0)):
        record.apply(made)
    chronicle = Chronicle(record, account, HandClock())
    chronicle.read(())
    for each in news:
        record.apply(each)
    chronicle.read(news)
    return chronicle


def named(commitment: Digest, slot: int) -> dict[str, Any]:
    return {"version": 2, "slot": slot, "commitment": "0x" + commitment.hex()}


def test_what_happened_before_is_summed_up_in_one_line(lines: Lines) -> None:
    record = Record(Run(RUN, TRAINER, PARAMS, b"", ZERO, 0), head=AT)
    history = [
        CheckpointPublished(AT, RUN, Version(0), ZERO),
        submitted(WORKER, MINE, 0),
        Settled(AT, RUN, MINE, WORKER, 9),
    ]
    for each in history:
        record.apply(each)

    Chronicle(record, VALIDATOR, HandClock()).read(history)

    (line,) = lines()
    assert line == {
        "level": "info", "event": "chain read", "run": 1, "block": 7, "version": 0, "submissions": 1, "open": 0,
        "own_open": None,
    }  # fmt: skip


def test_a_worker_hears_of_its_own_submissions_only(lines: Lines) -> None:
    told(WORKER, Settled(AT, RUN, MINE, WORKER, 5 * 10**18), Settled(AT, RUN, THEIRS, OTHER, 1))

    assert lines()[1:] == [{"level": "info", "event": "settled", **named(MINE, 3), "pay": "5000000000000000000"}]


def test_a_worker_is_warned_of_what_goes_against_it(lines: Lines) -> None:
    report = Reported(AT, RUN, MINE, VALIDATOR, 2**32 - 1, 9, ZERO, 1)
    slash = SlashExecuted(AT, RUN, MINE, WORKER, 25, Digest(b"\x0f" * 32))
    told(WORKER, report, slash)

    _, reported, slashed = lines()
    assert reported == {
        "level": "warning", "event": "reported", **named(MINE, 3), "check": "sampling", "leaf": "whole file",
        "validator": VALIDATOR, "votes": 1, "quorum": 1,
    }  # fmt: skip
    assert (slashed["level"], slashed["event"], slashed["amount"]) == ("warning", "slashed", 25)
    assert slashed["transaction"] == "0x" + "0f" * 32


def test_a_validator_hears_of_every_submission_and_whose_it_is(lines: Lines) -> None:
    later = Submitted(AT, RUN, Digest(b"\x03" * 32), OTHER, Version(2), 1, ZERO, 5, ZERO)
    told(VALIDATOR, later, Voided(AT, RUN, MINE, 6, 7), Expired(AT, RUN, THEIRS))

    _, seen, voided, expired = lines()
    assert (seen["event"], seen["node"], seen["units"], seen["due"]) == ("commitment seen", OTHER, 5, 86)
    assert voided == {
        "level": "info",
        "event": "voided",
        **named(MINE, 3),
        "node": WORKER,
        "check": "reward",
        "bond": 7,
    }
    assert (expired["event"], expired["node"]) == ("expired", OTHER)


def test_versions_relays_and_the_end_are_told_to_whom_they_concern(lines: Lines) -> None:
    news = (CheckpointPublished(AT, RUN, Version(0), ZERO), RelaySet(AT, RUN, RELAY, True), RunEnded(AT, RUN))
    for account, heard in (
        (TRAINER, ["run ended"]),  # it says itself what it publishes
        (RELAY, ["published", "approved as a relay", "run ended"]),
        (WORKER, ["published", "run ended"]),
    ):
        told(account, *news)
        assert [line["event"] for line in lines()][1:] == heard


def test_a_lost_chain_is_said_at_once_then_every_minute_and_when_it_is_back(lines: Lines) -> None:
    chronicle = told(WORKER)
    lines()
    for _ in range(130):  # asked twice a second
        chronicle.lost(Unreachable("no endpoint answers"))
        chronicle.clock.now += 0.5  # type: ignore[attr-defined]
    chronicle.read(())
    chronicle.read(())

    first, second, back = lines()
    assert (first["event"], first["seconds"], second["seconds"]) == ("chain unreachable, trying again", None, 60)
    assert first["reason"] == "no endpoint answers"
    assert back == {"level": "info", "event": "chain back", "seconds": 65, "block": 7}


async def test_the_life_of_a_submission_is_in_the_logs_of_worker_and_validator(build: Build, lines: Lines) -> None:
    network = await build(validators=1)
    (await network.validator()).go()
    (await network.worker()).go()
    (submission,) = await network.committed()
    commitment = submission.made.commitment
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.settled(commitment)
    await until(lambda: all(part.member.record.is_final(commitment) for part in network.parts))

    found = [line for line in lines() if line.get("commitment") in {None, "0x" + commitment.hex()}]
    events = [line["event"] for line in found]
    for what in ("slot begun", "generated", "submitted", "file handed over", "commitment seen", "file taken",
                 "Have signed", "audited", "NoFault signed", "settled"):  # fmt: skip
        assert what in events, what
    by_event = {line["event"]: line for line in reversed(found)}  # the first of each: the worker goes on
    assert by_event["audited"]["verdict"] == "accepted" and by_event["audited"]["rollouts"] == 4
    assert by_event["generated"]["tokens"] == by_event["audited"]["tokens"] > 0
    assert by_event["submitted"]["bytes"] == by_event["file taken"]["bytes"] == by_event["file handed over"]["bytes"]
    assert by_event["submitted"]["due"] == submission.made.block.time + 12
