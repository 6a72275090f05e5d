"""The record of a run against examples worked out by hand."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ledger.base import (
    UNDECIDED,
    Address,
    Allocated,
    Block,
    Convicted,
    EndpointSet,
    Event,
    Expired,
    RelaySet,
    Reported,
    Run,
    RunEnded,
    Settled,
    SlashExecuted,
    State,
    Version,
    Voided,
)
from ledger.errors import Unreachable
from node.reading import BLOCKS_AT_ONCE, Reader
from node.record import MAX_ENDPOINTS, Record
from tests.node.events import NODE, OTHER, PARAMS, RUN, Chain, block, digest, published, submitted


def record_of(*events: Event, head: int = 1000) -> Record:
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))
    asyncio.run(Reader(Chain(list(events), head), record).sync())  # type: ignore[arg-type]
    return record


async def test_events_count_once_when_three_read_at_once() -> None:
    chain = Chain([published(0, 1), submitted(1, 3), submitted(2, 4, slot=1)], 10)
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))

    reader = Reader(chain, record)  # type: ignore[arg-type]
    news = await asyncio.gather(*(reader.sync() for _ in range(3)))

    assert [len(each) for each in news] == [3, 0, 0]
    assert [made.commitment for made in record.commits[Version(0), NODE]] == [digest(1), digest(2)]


async def test_only_confirmed_blocks_are_read_and_each_once() -> None:
    chain = Chain([published(0, 1), submitted(1, 5), submitted(2, 9, slot=1)], 10)
    chain.confirmations = 3
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))
    await Reader(chain, record).sync()  # type: ignore[arg-type]
    assert (list(record.submissions), record.head) == ([digest(1)], block(10))

    chain.tip = 12
    await Reader(chain, record).sync()  # type: ignore[arg-type]
    assert chain.asked == [(0, 7), (8, 9)]
    assert list(record.submissions) == [digest(1), digest(2)]


async def test_reading_goes_on_where_it_was_when_the_chain_stopped_answering() -> None:
    chain = Chain([published(0, 1), submitted(1, 5), submitted(2, 2500, slot=1)], 3000)
    chain.failing_from = BLOCKS_AT_ONCE
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))
    with pytest.raises(Unreachable):
        await Reader(chain, record).sync()  # type: ignore[arg-type]
    assert list(record.submissions) == [digest(1)]

    chain.failing_from = None
    assert await Reader(chain, record).sync() == [submitted(2, 2500, slot=1)]  # type: ignore[arg-type]
    assert chain.asked == [(0, 1999), (2000, 3000)]


@pytest.mark.parametrize(
    ("version", "time", "is_open"),
    [
        (0, 1000, True),  # three versions are out and the level is 2: 2 <= 0 + 2
        (2, 1000, True),
        (3, 1000, False),  # not published
        (-1, 1000, False),
    ],
)
def test_versions_are_open_when_no_more_than_the_async_level_behind(version: int, time: int, is_open: bool) -> None:
    record = record_of(published(0, 1), published(1, 2), published(2, 3))
    record.head = Block(0, time)

    assert record.is_open(Version(version)) == is_open


@pytest.mark.parametrize(("time", "is_open"), [(430, True), (431, False)])
def test_a_version_stays_open_for_the_grace_after_it_has_left_the_window(time: int, is_open: bool) -> None:
    record = record_of(*(published(version, 10 * (version + 1)) for version in range(4)))  # version 3 at 400 s
    record.head = Block(0, time)

    assert record.is_open(Version(0)) == is_open
    assert record.is_open(Version(1))


@pytest.mark.parametrize(("time", "is_open"), [(530, True), (531, False)])
def test_every_version_closes_a_grace_after_the_end_of_the_run(time: int, is_open: bool) -> None:
    record = record_of(published(0, 1), RunEnded(block(50), RUN))
    record.head = Block(0, time)

    assert record.is_open(Version(0)) == is_open


def test_the_beacon_block_of_early_slots_is_the_later_of_publication_and_first_allocation() -> None:
    allocated = [Allocated(block(at), RUN, OTHER, NODE, 1) for at in (5, 30)]  # the first one counts
    record = record_of(published(0, 2), allocated[0], published(1, 20), allocated[1])

    assert record.beacon_block(Version(0), NODE, 0) == 5
    assert record.beacon_block(Version(0), NODE, 1) == 5
    assert record.beacon_block(Version(1), NODE, 1) == 20
    assert record.beacon_block(Version(2), NODE, 0) is None
    assert record.beacon_block(Version(0), OTHER, 0) is None


def test_the_beacon_block_of_later_slots_is_that_of_the_commit_two_slots_before() -> None:
    allocated = Allocated(block(1), RUN, OTHER, NODE, 1)
    mine = [submitted(1, 11, slot=0), submitted(2, 12, slot=1), submitted(3, 13, version=1, slot=0)]
    record = record_of(published(0, 1), published(1, 2), allocated, *mine, submitted(4, 14, node=OTHER))

    assert record.beacon_block(Version(0), NODE, 2) == 11
    assert record.beacon_block(Version(0), NODE, 3) == 12
    assert record.beacon_block(Version(0), NODE, 4) is None
    assert record.beacon_block(Version(1), NODE, 2) == 13


def after(*events: Event) -> Any:
    record = record_of(published(0, 1), submitted(1, 10), *events)
    return record, record.submissions[digest(1)]


def test_a_submission_goes_through_its_states_as_the_chain_says() -> None:
    reported = Reported(block(12), RUN, digest(1), OTHER, 3, 8, digest(7), 1)
    convicted = Convicted(block(13), RUN, digest(1), 3, 8, 200)
    slashed = SlashExecuted(block(20), RUN, digest(1), NODE, 5, digest(8))

    assert after()[1].state == State.SUBMITTED
    assert after(Settled(block(14), RUN, digest(1), OTHER, 42))[1].reward == 42
    assert after(Expired(block(14), RUN, digest(1)))[1].state == State.EXPIRED
    assert after(Voided(block(14), RUN, digest(1), 6, 1))[1].check == 6
    assert after(reported)[1].state == State.FAULTED
    assert after(replace(reported, check=6))[1].state == State.SUBMITTED  # only 8 and 9 freeze
    record, submission = after(reported, convicted, slashed)
    assert (submission.state, submission.check, submission.slash) == (State.SLASHED, 8, slashed)
    assert submission.concluded == block(20)
    assert record.is_final(digest(1)) and record.open_submissions() == ()


def test_open_submissions_come_oldest_first_and_of_the_versions_asked_for() -> None:
    record = record_of(
        published(0, 1), published(1, 2), submitted(3, 10), submitted(1, 11, version=1), submitted(2, 12, slot=1),
        Expired(block(13), RUN, digest(3)),
    )  # fmt: skip

    assert [s.made.commitment for s in record.open_submissions()] == [digest(1), digest(2)]
    assert {s.made.commitment for s in record.made_in(range(1))} == {digest(3), digest(2)}
    assert {s.made.commitment for s in record.made_in(range(1, 5))} == {digest(1)}
    assert not record.is_final(digest(77))
    assert (record.due(record.open_submissions()[0]), record.audit_time(record.open_submissions()[0])) == (126, 116)


def test_relays_come_and_go_and_the_last_endpoint_counts() -> None:
    record = record_of(
        RelaySet(block(1), RUN, OTHER, True), RelaySet(block(2), RUN, NODE, True),
        RelaySet(block(3), RUN, OTHER, False), EndpointSet(block(4), NODE, "http://a"), EndpointSet(block(5), NODE, "http://b"),
    )  # fmt: skip

    assert (record.relays, record.endpoints) == ({NODE}, {NODE: "http://b"})
    assert (record.latest, record.root(Version(0))) == (None, None)


def test_the_endpoints_of_those_with_a_part_stay_when_strangers_announce_any_number() -> None:
    relay, node = Address("0x" + "0c" * 20), Address("0x" + "0d" * 20)
    strangers = [Address(f"0x{number:040x}") for number in range(1 << 30, (1 << 30) + MAX_ENDPOINTS + 5)]
    events: list[Event] = [
        EndpointSet(block(1), strangers[0], "http://stranger"),
        *(EndpointSet(block(1), who, "http://part") for who in (NODE, relay, node)),
        RelaySet(block(2), RUN, relay, True),
        Allocated(block(2), RUN, OTHER, node, 5),
        *(EndpointSet(block(3), who, "http://stranger") for who in strangers[1:]),
    ]

    endpoints = record_of(*events).endpoints

    assert [endpoints.get(who) for who in (NODE, relay, node)] == ["http://part"] * 3
    assert len(endpoints) == MAX_ENDPOINTS
    assert strangers[0] not in endpoints and strangers[-1] in endpoints


REPORTED = Reported(block(12), RUN, digest(1), OTHER, 3, 8, digest(7), 1)


@pytest.mark.parametrize(
    "lie",
    [
        published(1000, 12),
        published(0, 12),  # which is there
        submitted(1, 12, slot=1),  # a commitment that is there
        submitted(2, 12),  # a slot that is taken
        submitted(2, 12, slot=2),
        submitted(2, 12, version=1),  # not published
        replace(REPORTED, check=77),
        replace(REPORTED, check=UNDECIDED),
        Convicted(block(12), RUN, digest(1), 3, 11, 200),
        Voided(block(12), RUN, digest(1), 254, 1),
        replace(REPORTED, commitment=digest(77)),
        Convicted(block(12), RUN, digest(77), 3, 8, 200),
        Voided(block(12), RUN, digest(77), 6, 1),
        Settled(block(12), RUN, digest(77), OTHER, 42),
        Expired(block(12), RUN, digest(77)),
        SlashExecuted(block(12), RUN, digest(77), NODE, 5, digest(8)),
    ],
    ids=str,
)
async def test_nothing_of_an_answer_is_applied_when_an_event_in_it_cannot_be(lie: Event) -> None:
    """The next answer, an honest one about the same blocks, is read as if there had been no lie."""
    honest: list[Event] = [published(0, 1), submitted(1, 10), RelaySet(block(11), RUN, OTHER, True)]
    chain = Chain([*honest, lie], 20)
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))

    with pytest.raises(Unreachable, match="not believed"):
        await Reader(chain, record).sync()  # type: ignore[arg-type]
    assert record == Record(record.run)

    chain.all = [*honest, REPORTED, Voided(block(13), RUN, digest(1), UNDECIDED, 0)]
    assert await Reader(chain, record).sync() == chain.all  # type: ignore[arg-type]
    assert record.submissions[digest(1)].state == State.VOIDED


async def test_an_event_that_cannot_follow_what_was_applied_earlier_is_not_believed() -> None:
    chain = Chain([published(0, 1), submitted(1, 10)], 20)
    record = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))
    await Reader(chain, record).sync()  # type: ignore[arg-type]

    for lie in (published(2, 25), submitted(1, 25, slot=1), submitted(2, 25)):
        chain.all, chain.tip = [lie], 30
        with pytest.raises(Unreachable, match="not believed"):
            await Reader(chain, record).sync()  # type: ignore[arg-type]

    chain.all = [published(1, 25), submitted(2, 25, slot=1), Expired(block(26), RUN, digest(1))]
    assert await Reader(chain, record).sync() == chain.all  # type: ignore[arg-type]
