"""The record of a run whose endpoints made events up or left them out."""

import pytest

from ledger.base import (
    Event,
    Expired,
    Run,
    RunEnded,
    RunState,
    Settled,
    Submitted,
)
from ledger.errors import Contradicted, Unreachable
from node.reading import COMPARE_SECONDS, REREAD_SECONDS, Reader
from node.record import Record
from tests.node.events import NODE, OTHER, PARAMS, RUN, Chain, StoppedClock, block, digest, published, submitted

OPEN = RunState(1, 0, 0, 1, ended_at=0)
SETTLED = Settled(block(30), RUN, digest(1), OTHER, 42)


def started(*events: Event, head: int) -> tuple[Chain, Reader, StoppedClock]:
    chain, clock = Chain(list(events), head), StoppedClock()
    chain.state = OPEN
    return chain, Reader(chain, Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0)), clock), clock  # type: ignore[arg-type]


async def test_a_made_up_end_of_the_run_is_not_believed() -> None:
    chain, reader, _ = started(published(0, 1), submitted(1, 10), RunEnded(block(20), RUN), head=20)
    with pytest.raises(Unreachable, match="not believed: RunEnded"):
        await reader.sync()
    assert reader.record.ended is None

    chain.all = chain.all[:2]
    await reader.sync()
    assert (reader.record.ended, list(reader.record.submissions)) == (None, [digest(1)])

    chain.all.append(RunEnded(block(25), RUN))
    chain.tip, chain.state = 30, RunState(1, 0, 0, 1, ended_at=250)
    await reader.sync()
    assert reader.record.ended == block(25)


async def test_a_submission_that_was_left_out_once_is_known_after_all_is_read_anew() -> None:
    chain, reader, _ = started(published(0, 1), head=20)
    await reader.sync()
    record, commits = reader.record, reader.record.commits

    chain.all, chain.tip = [published(0, 1), submitted(1, 10), submitted(2, 25, slot=1), SETTLED], 40
    news = await reader.sync()

    assert news == chain.all[1:]
    assert reader.record.submissions[digest(1)].reward == 42
    assert [s.made.commitment for s in record.open_submissions()] == [digest(2)]
    assert reader.record is record and record.commits is not commits
    assert chain.asked == [(0, 20), (21, 40), (0, 40)]
    chain.tip = 41
    assert await reader.sync() == []
    assert chain.asked[3:] == [(41, 41)]


@pytest.mark.parametrize(
    ("left_out", "state"),
    [
        (submitted(2, 30, slot=1), RunState(1, 0, 0, 2, ended_at=0)),
        (SETTLED, RunState(1, 0, 0, 0, ended_at=0)),
        (published(1, 30), RunState(2, 0, 0, 1, ended_at=0)),
        (RunEnded(block(30), RUN), RunState(1, 0, 0, 1, ended_at=300)),
    ],
    ids=["submitted", "settled", "published", "ended"],
)
async def test_an_event_that_was_left_out_is_missed_by_the_state_of_the_contract(
    left_out: Event, state: RunState
) -> None:
    chain, reader, clock = started(published(0, 1), submitted(1, 10), head=40)
    chain.confirmations = 3
    await reader.sync()
    chain.all.append(left_out)
    chain.state = state

    comparisons = 2 if isinstance(left_out, Submitted | Settled) else 1  # once may be a node that lags
    for _ in range(comparisons):
        clock.seconds += COMPARE_SECONDS
        assert await reader.sync() == []
        chain.tip += 3  # the state was that of the last block, which is confirmed only now
        news = await reader.sync()
    assert news == [left_out]
    assert reader.record == await read_whole(chain)


async def test_a_state_that_fits_brings_no_second_reading() -> None:
    chain, reader, clock = started(published(0, 1), submitted(1, 10), head=40)
    for _ in range(4):
        await reader.sync()
        clock.seconds += COMPARE_SECONDS
        chain.tip += 1
    chain.all.append(Settled(block(43), RUN, digest(1), OTHER, 42))  # after the block of the last comparison
    await reader.sync()
    assert chain.asked == [(0, 40), (41, 41), (42, 42), (43, 43), (44, 44)]


async def read_whole(chain: Chain) -> Record:
    fresh = Record(Run(RUN, NODE, PARAMS, b"{}", digest(0), 0))
    await Reader(chain, fresh).sync()  # type: ignore[arg-type]
    return fresh


async def test_a_run_is_over_only_when_the_contract_says_so_too() -> None:
    chain, reader, clock = started(published(0, 1), RunEnded(block(20), RUN), head=30)
    chain.state = RunState(1, 0, 0, 1, ended_at=200)  # a submission was left out
    await reader.sync()
    assert not reader.record.is_over

    chain.all.insert(1, submitted(1, 10))
    for _ in range(2):
        clock.seconds += COMPARE_SECONDS
        await reader.sync()
        chain.tip += 1
        news = await reader.sync()
    assert news == [chain.all[1]]
    assert not reader.record.is_over
    chain.all.append(Expired(block(33), RUN, digest(1)))
    chain.tip, chain.state = 33, RunState(1, 0, 0, 0, ended_at=200)
    await reader.sync()
    assert reader.record.is_over


async def test_what_never_fits_together_is_read_anew_now_and_then_and_ends_the_reading_at_last() -> None:
    chain, reader, clock = started(published(0, 1), published(7, 5), head=20)
    for seconds in (0.0, 1.0, REREAD_SECONDS - 2):
        clock.seconds += seconds
        with pytest.raises(Unreachable, match="not believed"):
            await reader.sync()
    assert len(chain.asked) == 4  # one of them anew
    clock.seconds += 1.0
    with pytest.raises(Contradicted, match=r"not believed: .* start again with another --rpc"):
        await reader.sync()


async def test_a_second_end_of_a_submission_is_not_believed() -> None:
    _, reader, _ = started(published(0, 1), submitted(1, 10), SETTLED, Expired(block(31), RUN, digest(1)), head=40)
    with pytest.raises(Unreachable, match="not believed: Expired"):
        await reader.sync()
